"""Training by gradients, in PyTorch: the one file that needs it.

A step by interactions looks at the vectors of a batch and of what is drawn for it. It gathers them once each, takes the slopes
of the loss from losses.py back to them, and moves them by Adam, whose moments rest as long as a vector is not touched. Where
every item is a candidate, a step is by users: their scores of all items are one product, in which their positives are, too,
and Adam moves everything.
An epoch's draws follow from the seed and its number, so that a training that goes on where it was killed ends at the same bits.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from numba import get_num_threads
from torch import Tensor
from torch.nn.functional import embedding_bag, softplus

from gramian.data.interactions import Interactions
from gramian.errors import Inaccurate, NotSupported
from gramian.models.iterative import State
from gramian.progress import bar
from gramian.sampled.backbones import back_to, geometry, rows_of
from gramian.sampled.losses import Scores
from gramian.sampled.negatives import InBatch, Uniform

if TYPE_CHECKING:
    from gramian.sampled.autoencoders import Autoencoder
    from gramian.sampled.factor_model import FactorModel

BETAS = (0.9, 0.999)
LEAST = 0.01  # the learning rate is never less than this part of the first
Found = dict[str, tuple[Tensor | None, Tensor]]  # slopes by table, and of which of its rows; None: of all
Places = dict[str, tuple[Tensor | None, list[Tensor]]]  # rows of a table that were looked at, and how often: by their numbers
KINDS = {"float32": torch.float32, "float64": torch.float64}


def device_of(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise NotSupported("a GPU for device='cuda'", "none that PyTorch can use", "Pass device='auto'")
    return torch.device("cuda" if torch.cuda.is_available() and name != "cpu" else "cpu")


def draws(device: torch.device, *numbers: int) -> torch.Generator:
    """A source of random numbers that follows from these."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
    return torch.Generator(device).manual_seed(seed)


class Adam:
    """Tables, of which a step moves some rows or all."""

    def __init__(self, state: State, names: tuple[str, ...], device: torch.device) -> None:
        self.tables = {name: torch.from_numpy(array.copy()).to(device) for name, array in state.arrays.items()}
        self.names, self.steps = names, int(state.facts.get("steps", 0))
        for name in names:
            for moment in ("mean", "square"):
                self.tables.setdefault(f"{name}.{moment}", torch.zeros_like(self.tables[name]))

    def __getitem__(self, name: str) -> Tensor:
        return self.tables[name]

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: table.detach().cpu().numpy().copy() for name, table in self.tables.items()}

    def move(self, name: str, rows: Tensor | None, slopes: Tensor, rate: float) -> None:
        """One step of a table, in these rows, which are distinct; None: in all of them."""
        table, mean, square = (self.tables[f"{name}{part}"] for part in ("", ".mean", ".square"))
        one, two = BETAS
        first = mean if rows is None else mean.index_select(0, rows)
        second = square if rows is None else square.index_select(0, rows)
        first.lerp_(slopes, 1 - one)
        second.mul_(two).addcmul_(slopes, slopes, value=1 - two)
        short = (1 - two**self.steps) ** 0.5  # of what the squares will come to
        scale, by = second.sqrt().add_(1e-8 * short), -rate * short / (1 - one**self.steps)
        if rows is None:
            table.addcdiv_(first, scale, value=by)
        else:
            mean.index_copy_(0, rows, first)
            square.index_copy_(0, rows, second)
            table.index_add_(0, rows, first.div_(scale), alpha=by)


class Rate:
    """A learning rate that is halved when nothing has improved for some epochs."""

    def __init__(self, first: float, patience: int, facts: dict[str, Any]) -> None:
        self.least, self.patience = first * LEAST, patience
        self.now, self.best, self.waited = facts.get("rate", first), facts.get("best"), facts.get("waited", 0)
        self.by_verdict = facts.get("by_verdict", False)

    def judge(self, verdict: float | None, objective: float) -> None:
        """By what was thought of an epoch, or by its loss. One says nothing of the other."""
        value, by_verdict = (-objective, False) if verdict is None else (float(verdict), True)
        if self.best is None or by_verdict != self.by_verdict:
            self.best, self.by_verdict, self.waited = value, by_verdict, 0
            return
        self.waited = 0 if value > self.best else self.waited + 1
        self.best = max(value, self.best)
        if self.waited >= self.patience:
            self.now, self.waited = max(self.now / 2, self.least), 0

    def facts(self) -> dict[str, Any]:
        return {"rate": self.now, "best": self.best, "waited": self.waited, "by_verdict": self.by_verdict}


def trained(step_epoch: Any, tables: Adam, recipe: Any, state: State) -> Generator[State, float | None, None]:
    """Epochs without end: each is judged by what is sent, or by the loss, and the learning rate follows."""
    number = int(state.facts.get("number", 0))
    rate = Rate(recipe.learning_rate, recipe.halve_after, state.facts)
    verdict, objective = state.verdict, state.objective
    del state
    while True:
        if number:
            rate.judge(verdict, objective)
        torch.set_num_threads(get_num_threads())
        objective = step_epoch(number, rate.now)
        if not (np.isfinite(objective) and all(bool(tables[name].isfinite().all()) for name in tables.names)):
            do = "Lower the learning rate, or raise l2"
            raise Inaccurate("a finite loss", f"{objective} in epoch {number + 1}", do)
        number += 1
        facts = {"number": number, "steps": tables.steps, **rate.facts()}
        verdict = yield State(tables.arrays(), objective, facts)


class Training:
    """A factor model in training."""

    def __init__(self, recipe: FactorModel, events: Interactions, state: State) -> None:
        self.recipe, self.device, self.by_users = recipe, device_of(recipe.device), recipe.loss.by_users
        self.loss = recipe.loss.folded() if self.by_users else recipe.loss
        self.geometry = geometry(recipe.backbone, recipe.loss.of_distances)
        self.tables = Adam(state, recipe.tables, self.device)
        x = events.matrix
        self.kind = KINDS[state.users.dtype.name]
        self.indptr, self.rows, self.columns = (
            torch.from_numpy(np.asarray(part, np.int64)).to(self.device) for part in (x.indptr, events.rows, x.indices)
        )
        self.sizes = self.indptr.diff()
        self.n_items = events.n_items
        self.graph = Graph(x, self.device, self.kind) if recipe.backbone.n_layers else None
        self.in_batch = isinstance(getattr(self.loss, "sampler", None), InBatch)
        if not self.by_users:
            sampler = self.loss.sampler  # type: ignore[attr-defined]
            self.log_q = torch.from_numpy(sampler.log_probabilities(events.popularity)).to(self.device)
            self.cumulated = self.log_q.exp().cumsum(0)
            self.log_q = self.log_q.to(self.kind)
        debiased = getattr(self.loss, "debiased", None)
        if debiased:
            priors = debiased.priors(np.diff(x.indptr), events.n_items)
            self.priors = torch.from_numpy(priors).to(self.device, self.kind)[:, None]

    def epochs(self, state: State) -> Generator[State, float | None, None]:
        return trained(self.epoch, self.tables, self.recipe, state)

    def epoch(self, number: int, rate: float) -> float:
        """The mean loss of its batches, with penalties."""
        source = draws(self.device, self.recipe.seed, number)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        with bar(f"epoch {number + 1}", len(self.rows)) as advance:
            for batch in self.batches(source):
                if self.by_users:
                    size, value = int(self.sizes[batch].sum()), self.step_by_users(batch, rate)
                else:
                    size, value = len(batch), self.step(self.rows[batch], self.columns[batch], source, rate)
                total += value * size
                advance(size)
        return float(total) / len(self.rows)

    def batches(self, source: torch.Generator) -> Sequence[Tensor]:
        """Interactions at random, or users who have about as many."""
        if not self.by_users:
            return torch.randperm(len(self.rows), generator=source, device=self.device).split(self.recipe.batch_size)
        users = torch.nonzero(self.sizes)[:, 0]
        users = users[torch.randperm(len(users), generator=source, device=self.device)]
        before = self.sizes[users].cumsum(0) - self.sizes[users]
        counts = torch.unique_consecutive(before // self.recipe.batch_size, return_counts=True)[1]
        return users.split(counts.tolist())

    def candidates(self, items: Tensor, source: torch.Generator) -> Tensor:
        """For all of the batch, or in rows for each of it."""
        loss: Any = self.loss
        if isinstance(loss.sampler, InBatch):
            return items[: loss.n_negatives]
        shape = (loss.n_negatives,) if loss.sampler.shared else (len(items), loss.n_negatives)
        places = torch.rand(shape, generator=source, dtype=torch.float64, device=self.device)
        if isinstance(loss.sampler, Uniform):
            return (places * self.n_items).long()
        return torch.searchsorted(self.cumulated, places * self.cumulated[-1], right=True).clip(max=self.n_items - 1)

    def step(self, users: Tensor, items: Tensor, source: torch.Generator, rate: float) -> Tensor:
        """One batch of (user, item)."""
        loss, b = self.loss, len(users)
        shown = self.candidates(items, source)
        if self.in_batch and bool((shown == shown[0]).all()):
            return torch.zeros((), dtype=torch.float64, device=self.device)  # nobody has a negative here
        liked = self.more(users, source) if getattr(loss, "debiased", None) else None
        my_users, user_at = distinct(users, len(self.sizes))
        asked = [part.reshape(-1) for part in (items, shown, liked) if part is not None]
        my_items, at = distinct(torch.cat(asked), self.n_items)
        item_at, shown_at, *rest = at.split([len(part) for part in asked])
        liked_at = rest[0].view(b, -1) if rest else None

        passed = self.passed_on()
        p = passed["users"].index_select(0, my_users).requires_grad_()
        q = passed["items"].index_select(0, my_items).requires_grad_()
        of_users = taken(rows_of(p, self.geometry, "user"), user_at)
        of_items = rows_of(q, self.geometry, "item")
        positive = (of_users * taken(of_items, item_at)).sum(1, keepdim=True)
        chosen = taken(of_items, shown_at.view(shown.shape))
        seen: dict[str, Tensor] = {"positive": positive, "others": meet(of_users, chosen)}
        if liked_at is not None:
            seen["liked"] = meet(of_users, taken(of_items, liked_at))
        if "own" in loss.owns:
            seen["own"] = self.tables["own"][my_users].requires_grad_()
        if "item_own" in loss.owns:
            seen["item_own"] = self.tables["item_own"][my_items].requires_grad_()
        leaves = {name: seen[name] for name in loss.owns}
        seen |= {name: leaf[user_at if name == "own" else item_at] for name, leaf in leaves.items()}
        if loss.needs_between:
            seen["between"] = meet(taken(rows_of(q, self.geometry, "user"), item_at), chosen)[:, None, :]

        with torch.no_grad():
            values, slopes = loss(self.scores(seen, users, items, shown))
            named = {name: part for name, part in slopes._asdict().items() if part is not None}
        torch.autograd.backward([seen[name] for name in named], list(named.values()))

        moved = {"users": p, "items": q, **leaves}
        rows = {"users": my_users, "items": my_items, "own": my_users, "item_own": my_items}
        found: Found = {name: (rows[name], slope(leaf) / b) for name, leaf in moved.items()}
        places: Places = {"users": (my_users, [user_at]), "items": (my_items, [item_at, shown_at])}
        return values.mean(dtype=torch.float64) + self.move(found, places, passed, rate)

    def step_by_users(self, users: Tensor, rate: float) -> Tensor:
        """One batch of users, each with all they touched and every item a candidate. A user counts as often as they touched."""
        loss: Any = self.loss
        sizes, row, place, columns = touched(self.indptr, self.columns, users)
        shape, share = (len(users), int(sizes.max())), (1 / sizes).to(self.kind)
        at, weight = sizes.new_zeros(shape), share.new_zeros(shape)
        at[row, place], weight[row, place] = columns, share[row]

        passed = self.passed_on()
        p, q = passed["users"][users], passed["items"]
        of_users, of_items = rows_of(p, self.geometry, "user"), rows_of(q, self.geometry, "item")
        others = of_users @ of_items.T
        positive = others.gather(1, at)
        parts: dict[str, Any] = {"n": self.n_items if loss.all_items else loss.n_negatives}
        if getattr(loss, "debiased", None):
            parts |= {"liked": positive, "liked_weight": weight, "prior": self.priors[users]}
        if "own" in loss.owns:
            parts["own"] = self.tables["own"][users]
        values, slopes = loss(Scores(positive, weight, others, **parts))
        by_score = slopes.others
        for part in (slopes.positive, slopes.liked):
            if part is not None:
                by_score.scatter_add_(1, at, part)
        counts = (sizes / sizes.sum()).to(self.kind)[:, None]

        by_users = {"users": back_to(p, by_score @ of_items, self.geometry) * counts}
        if slopes.own is not None:
            by_users["own"] = slopes.own * counts
        found: Found = {"items": (None, back_to(q, by_score.T @ (of_users * counts), self.geometry))}
        for name, part in by_users.items():  # moments of one step an epoch would be those of many epochs: they go on
            found[name] = (None, torch.zeros_like(self.tables[name]).index_copy_(0, users, part))
        everything = [] if loss.all_items else [torch.arange(self.n_items, device=self.device)]
        places: Places = {"users": (users, [row]), "items": (None, [columns, *everything])}
        return counts[:, 0].double() @ values.double() + self.move(found, places, passed, rate)

    def move(self, found: Found, places: Places, passed: dict[str, Tensor], rate: float) -> Tensor:
        """One step of the tables by these slopes. Gives the penalty where they were."""
        self.tables.steps += 1
        penalty = torch.zeros((), dtype=torch.float64, device=self.device)
        with torch.no_grad():
            if self.graph:
                found |= self.graph.back(found, passed, self.recipe.backbone.n_layers)
            if self.recipe.l2:
                penalty = self.penalised(found, places)
            for name, (some, by) in found.items():
                self.tables.move(name, some, by, rate)
        return penalty

    def scores(self, seen: dict[str, Tensor], users: Tensor, items: Tensor, shown: Tensor) -> Scores:
        n = shown.shape[-1]
        parts: dict[str, Any] = {name: part.detach() for name, part in seen.items()}
        parts |= {"weight": torch.ones_like(parts["positive"]), "n": n, "log_q": self.log_q[shown]}
        if "liked" in parts:
            parts |= {"prior": self.priors[users], "liked_weight": 1 / parts["liked"].shape[1]}
        if self.in_batch or self.loss.skips_hits:
            hits = items[:, None] == shown
            drawn = torch.full_like(parts["positive"], n)
            if self.in_batch:
                drawn[:n] -= 1  # its own positive was not drawn
            if not self.loss.skips_hits:
                drawn = (~hits).sum(1, keepdim=True).to(self.kind)
            parts["log_share"] = (-drawn.clip(min=1).log()).expand(hits.shape).masked_fill(hits, -inf)
        return Scores(**parts)

    def more(self, users: Tensor, source: torch.Generator) -> Tensor:
        """More positives of these users, drawn with repetition."""
        m = self.loss.debiased.positives  # type: ignore[attr-defined]
        places = torch.rand((len(users), m), generator=source, dtype=torch.float64, device=self.device)
        sizes = self.sizes[users][:, None]
        return self.columns[self.indptr[users][:, None] + (places * sizes).long().minimum(sizes - 1)]

    def penalised(self, found: Found, places: Places) -> Tensor:
        """Add the slopes of l2 · (mean ‖p_u‖² + mean ‖q_i‖² + mean ‖q_j‖²) over the batch and its candidates."""
        value = torch.zeros((), dtype=torch.float64, device=self.device)
        for name, (mine, parts) in places.items():
            rows, slopes = found[name]
            vectors = self.tables[name] if mine is None else self.tables[name][mine]
            for at in parts:
                counts = torch.bincount(at, minlength=len(vectors)).to(self.kind) / len(at)
                by = 2 * self.recipe.l2 * counts[:, None] * vectors
                if rows is None and mine is not None:  # the slopes are of the whole table
                    slopes.index_add_(0, mine, by)
                else:
                    slopes += by
                value += self.recipe.l2 * (counts @ vectors.square().sum(1))
        return value

    def passed_on(self) -> dict[str, Tensor]:
        """The vectors that score: those of the tables, or what arrives of them along the graph."""
        own = {name: self.tables[name] for name in ("users", "items")}
        return self.graph.passed(own, self.recipe.backbone.n_layers) if self.graph else own


def slope(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None
    return leaf.grad


class AutoencoderTraining:
    """A nonlinear autoencoder in training: a step looks at all items of some users."""

    def __init__(self, recipe: Autoencoder, events: Interactions, state: State) -> None:
        self.recipe, self.device = recipe, device_of(recipe.device)
        self.tables = Adam(state, tuple(recipe.shapes(events)), self.device)
        x = events.matrix
        self.indptr, self.columns = (
            torch.from_numpy(np.asarray(part, np.int64)).to(self.device) for part in (x.indptr, x.indices)
        )
        self.sizes = self.indptr.diff()
        self.users = torch.nonzero(self.sizes)[:, 0]

    def epochs(self, state: State) -> Generator[State, float | None, None]:
        return trained(self.epoch, self.tables, self.recipe, state)

    def epoch(self, number: int, rate: float) -> float:
        """The mean loss of its users, with penalties."""
        source = draws(self.device, self.recipe.seed, number)
        order = self.users[torch.randperm(len(self.users), generator=source, device=self.device)]
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        with bar(f"epoch {number + 1}", len(order)) as advance:
            for users in order.split(self.recipe.batch_size):
                parts = {name: self.tables[name].requires_grad_() for name in self.tables.names}
                for part in parts.values():
                    part.grad = None
                value = self.loss(parts, users, number, source)
                value.backward()
                total += value.detach() * len(users)
                self.tables.steps += 1
                with torch.no_grad():
                    for name, part in parts.items():
                        self.tables.move(name, None, slope(part), rate)
                advance(len(users))
        return float(total) / len(order)

    def loss(self, parts: dict[str, Tensor], users: Tensor, number: int, source: torch.Generator) -> Tensor:
        """The mean over these users, of histories of which a part is hidden from the first layer."""
        sizes, row, _, columns = touched(self.indptr, self.columns, users)
        keep = 1 - self.recipe.dropout
        kept = torch.rand(len(row), generator=source, device=self.device) < keep
        weights = kept / (keep * sizes[row] ** 0.5) if self.recipe.normalised else kept / keep
        code = embedding_bag(
            columns,
            parts["weight0"],
            sizes.cumsum(0) - sizes,
            mode="sum",
            per_sample_weights=weights.to(parts["weight0"].dtype),
        )
        if "users" in parts:
            code = code + parts["users"][users]
        penalty: Tensor | float = 0.0
        for layer, activation in enumerate(self.recipe.activations):
            code = (code @ parts[f"weight{layer}"] if layer else code) + parts[f"bias{layer}"]
            if activation == "none":  # the code is a distribution: mean and logarithm of the variance
                mean, spread = code.chunk(2, 1)
                penalty = self.divergence(number) * ((mean.square() + spread.exp() - spread - 1).sum(1) / 2).mean()
                noise = torch.randn(mean.shape, generator=source, device=self.device, dtype=mean.dtype)
                code = mean + noise * (spread / 2).exp()
            else:
                code = code.tanh() if activation == "tanh" else code.sigmoid()
        scores = code @ parts["output"].T + parts["output_bias"]
        of_touched = torch.zeros(len(users), dtype=scores.dtype, device=self.device).index_add(0, row, scores[row, columns])
        rest = sizes * scores.logsumexp(1) if self.recipe.normalised else softplus(scores).sum(1)
        if self.recipe.l2:
            penalty = penalty + self.recipe.l2 * sum(part.square().sum() for part in parts.values())
        return (rest - of_touched).mean() + penalty

    def divergence(self, number: int) -> float:
        """The weight of the divergence in this epoch."""
        recipe: Any = self.recipe
        return recipe.divergence * min(1.0, (number + 1) / recipe.warm_up)


def touched(indptr: Tensor, columns: Tensor, users: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """How many items these users touched; and of each, one after the other: whose it is, its place there, and the item."""
    sizes = indptr[users + 1] - indptr[users]
    row = torch.repeat_interleave(sizes)
    place = torch.arange(len(row), device=row.device) - (sizes.cumsum(0) - sizes)[row]
    return sizes, row, place, columns[indptr[users][row] + place]


def distinct(numbers: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The distinct ones among numbers below n, in order, and where each is among them: `torch.unique` without sorting."""
    there = torch.zeros(n, dtype=torch.bool, device=numbers.device)
    there[numbers] = True
    found = there.nonzero()[:, 0]
    place = torch.empty(n, dtype=torch.int64, device=numbers.device)
    place[found] = torch.arange(len(found), device=numbers.device)
    return found, place[numbers]


def taken(rows: Tensor, at: Tensor) -> Tensor:
    """Rows by number. Its slopes come back faster than those of rows[at]."""
    return rows.index_select(0, at.reshape(-1)).view(*at.shape, -1)


def meet(users: Tensor, items: Tensor) -> Tensor:
    """Scores of the same items for all, or of each user's own."""
    if items.ndim == 2:
        return users @ items.T
    return torch.bmm(items, users[:, :, None])[:, :, 0]


class Graph:
    """Who touched what, as a normalised graph: what is passed on along it is linear and symmetric, so slopes go back the same
    way."""

    def __init__(self, x: sp.csr_array, device: torch.device, kind: torch.dtype) -> None:
        binary = sp.csr_array((np.ones(x.nnz), x.indices, x.indptr), x.shape)
        of_users, of_items = (1 / np.sqrt(np.maximum(binary.sum(axis=axis), 1)) for axis in (1, 0))
        normal = sp.csr_array(binary.multiply(of_users[:, None]).multiply(of_items[None, :]))
        self.there, self.back_again = (sparse(part, device, kind) for part in (normal, sp.csr_array(normal.T.tocsr())))

    def passed(self, own: dict[str, Tensor], n_layers: int) -> dict[str, Tensor]:
        """The mean of what arrives after 0 to n_layers steps."""
        users, items = own["users"], own["items"]
        total = {"users": users.clone(), "items": items.clone()}
        for _ in range(n_layers):
            users, items = self.there @ items, self.back_again @ users
            total["users"] += users
            total["items"] += items
        return {name: part / (n_layers + 1) for name, part in total.items()}

    def back(self, found: Found, passed: dict[str, Tensor], n_layers: int) -> dict[str, tuple[None, Tensor]]:
        """The slopes by the tables, where those by some of what was passed on are given."""
        dense = {}
        for name in ("users", "items"):
            rows, slopes = found[name]
            dense[name] = slopes if rows is None else torch.zeros_like(passed[name]).index_copy_(0, rows, slopes)
        return {name: (None, part) for name, part in self.passed(dense, n_layers).items()}


def sparse(x: sp.csr_array, device: torch.device, kind: torch.dtype) -> Tensor:
    indptr, indices = (torch.from_numpy(np.asarray(part, np.int64)) for part in (x.indptr, x.indices))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "in beta state", for years
        return torch.sparse_csr_tensor(indptr, indices, torch.from_numpy(x.data).to(kind), size=x.shape).to(device)


def vectors(recipe: FactorModel, events: Interactions, state: State) -> dict[str, np.ndarray]:
    """The vectors that score, of users and items."""
    if not recipe.backbone.n_layers:
        return {"users": state.users, "items": state.items}
    graph = Graph(events.matrix, torch.device("cpu"), KINDS[state.users.dtype.name])
    own = {name: torch.from_numpy(state.arrays[name]) for name in ("users", "items")}
    return {name: part.numpy() for name, part in graph.passed(own, recipe.backbone.n_layers).items()}

"""Training of FactorModel, in PyTorch.

A step on interactions gathers the vectors of the batch and of its negatives once each, takes the gradients of the loss back to
them, and updates these rows alone. Where every item is a negative, a step is on users: the scores of all items are one matrix
product, which contains the positives too, and Adam updates all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import torch
from torch import Tensor

from gramian.core.epochs import TrainingState
from gramian.data.interactions import Interactions
from gramian.gradient.backbones import backpropagate_rows, score_geometry, scoring_rows
from gramian.gradient.encoder import TableGradients, scatter_rows
from gramian.gradient.encoders import make_encoder
from gramian.gradient.factor_model import FactorModel
from gramian.gradient.graph import TORCH_DTYPES
from gramian.gradient.initialization import VECTOR_TABLES
from gramian.gradient.loss import Scores
from gramian.gradient.pair_scores import gather_rows, score_pairs
from gramian.gradient.samplers import InBatch, Uniform
from gramian.gradient.scorers import BIAS_ARRAYS
from gramian.gradient.trainer import Trainer, gradient_of, seed_generator
from gramian.progress import progress_bar

# By table: rows of the batch (None: all), and for each term of the penalty the positions of its vectors among these rows.
PenaltyTerms = dict[str, tuple[Tensor | None, list[Tensor]]]


class FactorTrainer(Trainer):
    """Trains the vectors of users and items, and the biases that the loss learns."""

    recipe: FactorModel

    def __init__(self, recipe: FactorModel, events: Interactions, state: TrainingState) -> None:
        super().__init__(recipe, events, state, recipe.tables)
        self.batches_by_user = recipe.loss.batches_by_user
        self.loss = recipe.loss.all_items_loss() if self.batches_by_user else recipe.loss
        self.geometry = score_geometry(recipe.backbone, recipe.loss.uses_distances)
        self.dtype = TORCH_DTYPES[state.items.dtype.name]
        self.rows, self.n_items = self.to_tensor(events.rows), events.n_items
        self.encoder = make_encoder(recipe.backbone, events.matrix, self.device, self.dtype)
        self.max_length = 1.0 if recipe.loss.in_unit_ball else recipe.training.max_length
        self.in_batch = isinstance(getattr(self.loss, "sampler", None), InBatch)
        if not self.batches_by_user:
            log_q = torch.from_numpy(self.loss.log_probabilities(events.popularity)).to(self.device)
            self.cumulative_q = log_q.exp().cumsum(0)
            self.log_q = log_q.to(self.dtype)
        debiased = getattr(self.loss, "debiased", None)
        if debiased:
            priors = torch.from_numpy(debiased.priors(self.sizes.cpu().numpy(), events.n_items))
            self.priors = priors.to(self.device, self.dtype)[:, None]

    def train_epoch(self, number: int, learning_rate: float) -> float:
        generator = seed_generator(self.device, self.recipe.seed, number)
        self.encoder.start_epoch(generator)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        with progress_bar(f"epoch {number + 1}", len(self.rows)) as advance:
            for batch in self.batches(generator):
                if self.batches_by_user:
                    size, value = int(self.sizes[batch].sum()), self.step_on_users(batch, generator, learning_rate)
                else:
                    users, items = self.rows[batch], self.columns[batch]
                    self.encoder.held_out = batch
                    size, value = len(batch), self.step_on_interactions(users, items, generator, learning_rate)
                total += value * size
                advance(size)
        return float(total) / len(self.rows)

    def batches(self, generator: torch.Generator) -> Sequence[Tensor]:
        """Batches in random order: of interactions, or of users with about as many interactions."""
        batch_size = self.recipe.batch_size
        if not self.batches_by_user:
            return torch.randperm(len(self.rows), generator=generator, device=self.device).split(batch_size)
        users = torch.nonzero(self.sizes)[:, 0]
        users = users[torch.randperm(len(users), generator=generator, device=self.device)]
        interactions_before = self.sizes[users].cumsum(0) - self.sizes[users]
        users_per_batch = torch.unique_consecutive(interactions_before // batch_size, return_counts=True)[1]
        return users.split(users_per_batch.tolist())

    def sample_negatives(self, items: Tensor, generator: torch.Generator) -> Tensor:
        """Negatives for a batch of positive items: one list that all share, or a row for each."""
        loss: Any = self.loss
        if isinstance(loss.sampler, InBatch):
            return items[: loss.n_negatives]
        shape = (loss.n_negatives,) if loss.sampler.shared else (len(items), loss.n_negatives)
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64, device=self.device)
        if isinstance(loss.sampler, Uniform):
            return (uniform * self.n_items).long()
        quantiles = uniform * self.cumulative_q[-1]
        return torch.searchsorted(self.cumulative_q, quantiles, right=True).clip(max=self.n_items - 1)

    def sample_extra_positives(self, users: Tensor, generator: torch.Generator) -> Tensor:
        """Positives of each of these users, drawn with replacement, for debiasing."""
        n_draws = self.loss.debiased.positives  # type: ignore[attr-defined]
        uniform = torch.rand((len(users), n_draws), generator=generator, dtype=torch.float64, device=self.device)
        sizes = self.sizes[users][:, None]
        return self.columns[self.indptr[users][:, None] + (uniform * sizes).long().minimum(sizes - 1)]

    def step_on_interactions(self, users: Tensor, items: Tensor, generator: torch.Generator, learning_rate: float) -> Tensor:
        """Take a step on a batch of (user, item) pairs, and return its mean loss with the penalty."""
        loss = self.loss
        negatives = self.sample_negatives(items, generator)
        if self.in_batch and bool((negatives == negatives[0]).all()):
            return torch.zeros((), dtype=torch.float64, device=self.device)  # the batch has a single item, so no negatives
        own = {"positives": items[:, None]}  # by input of the loss: the items of each interaction, as rows
        if getattr(loss, "debiased", None):
            own["extra_positives"] = self.sample_extra_positives(users, generator)
        if negatives.ndim == 2:
            own["negatives"] = negatives
        own_items, shared = torch.cat(list(own.values()), 1), negatives if negatives.ndim == 1 else negatives[0, :0]
        batch_users, user_positions = unique_with_inverse(users, len(self.sizes))
        batch_items, positions = unique_with_inverse(torch.cat([own_items.reshape(-1), shared]), self.n_items)
        own_positions, shared_positions = positions[: own_items.numel()].view(own_items.shape), positions[own_items.numel() :]
        item_positions = own_positions[:, 0]
        negative_positions = shared_positions if len(shared) else own_positions[:, -negatives.shape[1] :]

        p, q = (vectors.requires_grad_() for vectors in self.encoder.encode(self.tables, batch_users, batch_items))
        kept_p, kept_q = (vectors * self.dropout_mask(vectors, generator) for vectors in (p, q))
        user_rows = gather_rows(scoring_rows(kept_p, self.geometry, "user"), user_positions)
        item_rows = scoring_rows(kept_q, self.geometry, "item")
        own_scores = score_pairs(user_rows, item_rows, own_positions).split([ids.shape[1] for ids in own.values()], 1)
        inputs: dict[str, Tensor] = dict(zip(own, own_scores, strict=True))
        if len(shared):
            inputs["negatives"] = score_pairs(user_rows, item_rows, shared_positions)
        rows = {"user_bias": batch_users, "item_bias": batch_items}
        biases = {name: self.tables[BIAS_ARRAYS[name]][rows[name]].requires_grad_() for name in loss.learned_biases}
        inputs |= {name: bias[user_positions if name == "user_bias" else item_positions] for name, bias in biases.items()}
        if loss.needs_item_item:
            positive_rows = gather_rows(scoring_rows(kept_q, self.geometry, "user"), item_positions)
            inputs["item_item"] = score_pairs(positive_rows, item_rows, negative_positions)[:, None, :]

        with torch.no_grad():
            values, by_input = loss(self.scores(inputs, users, items, negatives))
            input_gradients = {name: gradient for name, gradient in by_input._asdict().items() if gradient is not None}
        torch.autograd.backward([inputs[name] for name in input_gradients], list(input_gradients.values()))

        n = len(users)
        gradients: TableGradients = {
            "users": (batch_users, gradient_of(p) / n),
            "items": (batch_items, gradient_of(q) / n),
            **{BIAS_ARRAYS[name]: (rows[name], gradient_of(bias) / n) for name, bias in biases.items()},
        }
        penalty_terms: PenaltyTerms = {
            "users": (batch_users, [user_positions]),
            "items": (batch_items, [item_positions, negative_positions.reshape(-1)]),
        }
        return values.mean(dtype=torch.float64) + self.update_tables(gradients, penalty_terms, learning_rate)

    def scores(self, inputs: dict[str, Tensor], users: Tensor, items: Tensor, negatives: Tensor) -> Scores:
        """The input of the loss for a batch of interactions."""
        n = negatives.shape[-1]
        fields: dict[str, Any] = {name: tensor.detach() for name, tensor in inputs.items()}
        fields |= {"positive_weight": torch.ones_like(fields["positives"]), "n_negatives": n, "log_q": self.log_q[negatives]}
        fields["n_items"] = self.n_items
        if "extra_positives" in fields:
            fields |= {"prior": self.priors[users], "extra_positive_weight": 1 / fields["extra_positives"].shape[1]}
        if self.in_batch or self.loss.masks_accidental_hits:
            is_hit = items[:, None] == negatives
            n_drawn = torch.full_like(fields["positives"], n)
            if self.in_batch:
                n_drawn[:n] -= 1  # the first n positives are the negatives: none is a draw for itself
            if not self.loss.masks_accidental_hits:
                n_drawn = (~is_hit).sum(1, keepdim=True).to(self.dtype)
            fields["negative_log_weight"] = (-n_drawn.clip(min=1).log()).expand(is_hit.shape).masked_fill(is_hit, -inf)
        return Scores(**fields)

    def step_on_users(self, users: Tensor, generator: torch.Generator, learning_rate: float) -> Tensor:
        """Take a step on a batch of users with their whole histories, and return its mean loss with the penalty.

        Every item is a negative. The loss of a user is weighted by the number of their interactions.
        """
        loss: Any = self.loss
        sizes, row, position, columns = self.user_rows(users)
        shape, inverse_size = (len(users), int(sizes.max())), (1 / sizes).to(self.dtype)
        positives, positive_weight = sizes.new_zeros(shape), inverse_size.new_zeros(shape)
        positives[row, position], positive_weight[row, position] = columns, inverse_size[row]

        p, q = self.encoder.encode(self.tables, users, None)
        user_mask, item_mask = (self.dropout_mask(vectors, generator) for vectors in (p, q))
        p, q = p * user_mask, q * item_mask
        user_rows, item_rows = scoring_rows(p, self.geometry, "user"), scoring_rows(q, self.geometry, "item")
        scores = user_rows @ item_rows.T
        positive_scores = scores.gather(1, positives)
        fields: dict[str, Any] = {"n_negatives": self.n_items if loss.uses_all_items else loss.n_negatives}
        if getattr(loss, "debiased", None):
            fields |= {"extra_positives": positive_scores, "extra_positive_weight": positive_weight}
            fields["prior"] = self.priors[users]
        if "user_bias" in loss.learned_biases:
            fields["user_bias"] = self.tables[BIAS_ARRAYS["user_bias"]][users]
        values, gradients = loss(Scores(positive_scores, positive_weight, scores, **fields))
        by_scores = gradients.negatives
        for by_positives in (gradients.positives, gradients.extra_positives):
            if by_positives is not None:
                by_scores.scatter_add_(1, positives, by_positives)
        user_weight = (sizes / sizes.sum()).to(self.dtype)[:, None]

        by_users = {"users": backpropagate_rows(p, by_scores @ item_rows, self.geometry) * user_weight * user_mask}
        if gradients.user_bias is not None:
            by_users[BIAS_ARRAYS["user_bias"]] = gradients.user_bias * user_weight
        by_items = backpropagate_rows(q, by_scores.T @ (user_rows * user_weight), self.geometry) * item_mask
        table_gradients: TableGradients = {"items": (None, by_items)}
        table_gradients |= {name: (users, gradient) for name, gradient in by_users.items()}
        all_items = [] if loss.uses_all_items else [torch.arange(self.n_items, device=self.device)]
        penalty_terms: PenaltyTerms = {"users": (users, [row]), "items": (None, [columns, *all_items])}
        mean_value = user_weight[:, 0].double() @ values.double()
        return mean_value + self.update_tables(table_gradients, penalty_terms, learning_rate, all_rows=True)

    def dropout_mask(self, vectors: Tensor, generator: torch.Generator) -> Tensor | float:
        """0 where an entry is dropped, and elsewhere what keeps the expectation: 1/(1 − dropout)."""
        dropout = self.recipe.training.dropout
        if not dropout:
            return 1.0
        uniform = torch.rand(vectors.shape, generator=generator, dtype=torch.float32, device=self.device)
        return (uniform >= dropout).to(self.dtype) / (1 - dropout)

    def update_tables(
        self, gradients: TableGradients, penalty_terms: PenaltyTerms, learning_rate: float, all_rows: bool = False
    ) -> Tensor:
        """Update the tables by Adam, given the gradients by the scored vectors, and return the penalties before the update.

        Batches of users update all rows, because a user has one gradient an epoch: Adam's moments would be many epochs stale
        otherwise.
        """
        self.tables.steps += 1
        penalty = torch.zeros((), dtype=torch.float64, device=self.device) + self.encoder.backpropagate(gradients)
        with torch.no_grad():
            if self.recipe.l2:
                penalty += self.add_penalty_gradients(gradients, penalty_terms)
            if self.recipe.weight_decay:
                penalty += self.add_weight_decay(gradients)
            if self.recipe.training.max_norm is not None:
                norm = torch.stack([gradient.norm() for _, gradient in gradients.values()]).norm()
                factor = (self.recipe.training.max_norm / (norm + 1e-6)).clip(max=1)  # as torch's clip_grad_norm_
                gradients = {name: (rows, gradient * factor) for name, (rows, gradient) in gradients.items()}
            for name, (rows, gradient) in gradients.items():
                if all_rows:
                    rows, gradient = None, scatter_rows(rows, gradient, len(self.tables[name]))
                self.tables.update(name, rows, gradient, learning_rate)
                if self.max_length is not None and name in VECTOR_TABLES:
                    self.tables.shorten(name, rows, self.max_length)
        return penalty

    def add_weight_decay(self, gradients: TableGradients) -> Tensor:
        """Add the gradients of ½ · weight_decay · ‖·‖² of every table, and return its value. All rows then have a gradient."""
        decay = self.recipe.weight_decay
        for name, (rows, gradient) in gradients.items():
            table = self.tables[name]
            gradients[name] = (None, scatter_rows(rows, gradient, len(table)).add(table, alpha=decay))
        squares = [self.tables[name].square().sum(dtype=torch.float64) for name in gradients]
        return decay / 2 * torch.stack(squares).sum()

    def add_penalty_gradients(self, gradients: TableGradients, penalty_terms: PenaltyTerms) -> Tensor:
        """Add the gradients of l2 · (mean ‖p_u‖² + mean ‖q_i‖² + mean ‖q_j‖²) over the batch, and return its value."""
        l2 = self.recipe.l2
        penalty = torch.zeros((), dtype=torch.float64, device=self.device)
        for name, (batch_rows, terms) in penalty_terms.items():
            if name not in gradients:  # a backbone may have no table of users
                continue
            rows, gradient = gradients[name]
            vectors = self.tables[name] if batch_rows is None else self.tables[name][batch_rows]
            for positions in terms:
                frequency = torch.bincount(positions, minlength=len(vectors)).to(self.dtype) / len(positions)
                by_vectors = 2 * l2 * frequency[:, None] * vectors
                if rows is None and batch_rows is not None:  # the gradient is by the whole table
                    gradient.index_add_(0, batch_rows, by_vectors)
                else:
                    gradient += by_vectors
                penalty += l2 * (frequency @ vectors.square().sum(1))
        return penalty


def unique_with_inverse(numbers: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The distinct values of integers below n, in order, and the position of each integer among them.

    `torch.unique(return_inverse=True)` without sorting.
    """
    is_present = torch.zeros(n, dtype=torch.bool, device=numbers.device)
    is_present[numbers] = True
    unique = is_present.nonzero()[:, 0]
    position = torch.empty(n, dtype=torch.int64, device=numbers.device)
    position[unique] = torch.arange(len(unique), device=numbers.device)
    return unique, position[numbers]

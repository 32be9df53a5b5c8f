# %% [markdown]
# # Serving and the explorer
#
# **How do I put a model behind an address, and how long does a request take?**

# %%
import atexit
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

import matplotlib.pyplot as plt

import gramian as gr

events = gr.datasets.load("movielens", min_value=4).k_core(10)
gr.EDLAE(dropout=0.3, l2=200).fit(events).save("edlae")
gr.EASE(l2=200).fit(events).save("ease")

# %% [markdown]
# One command serves any number of models, and a page on which they can be compared. In a terminal: `gramian serve edlae
# ease`, then open the address it prints. Here it runs in the background at a free port.

# %%
command = [sys.executable, "-m", "gramian", "serve", "edlae", "ease", "--port", "0"]
service = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
atexit.register(service.kill)  # also if something below fails
while not (found := re.search(r"http://[\d.]+:\d+", service.stderr.readline())):
    assert service.poll() is None, "the service did not start"
address = found[0]
while True:  # the first start on a machine compiles kernels
    try:
        urllib.request.urlopen(f"{address}/ready").close()
        break
    except urllib.error.HTTPError as error:
        error.close()
        time.sleep(0.2)


def post(path, body):
    request = urllib.request.Request(address + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)


# %% [markdown]
# A request carries the history of a visitor, who need not be known. Filters are fields of the request.

# %%
answer = post("/recommend", {"model": "edlae", "history": [260, 1196], "k": 5, "deny_tags": ["Horror"]})
for item in answer["items"]:
    print(f"{item['score']:.3f}  {item['title']}")

# %% [markdown]
# The explorer is the page at the address itself: lists of up to four models side by side, reasons, similar items.

# %%
with urllib.request.urlopen(address) as response:
    assert "<title>" in response.read().decode()

# %% [markdown]
# Three hundred requests to each model, one after another.

# %%
histories = [events.items[events.matrix[[user]].indices][:50] for user in range(300)]
milliseconds = {}
for model in ("edlae", "ease"):
    milliseconds[model] = []
    for history in histories:
        started = time.perf_counter()
        post("/recommend", {"model": model, "history": history, "k": 10})
        milliseconds[model].append(1000 * (time.perf_counter() - started))
service.terminate()
service.communicate()

# %% [markdown]
# ## The answer
#
# One command and one request. How long requests take, with Python's own slow client and a new connection each time:

# %%
figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
for model, times in milliseconds.items():
    times = sorted(times)
    axes.plot(times, [(n + 1) / len(times) for n in range(len(times))], label=model)
axes.set_xscale("log")
axes.xaxis.set_major_formatter("{x:g}")
axes.set_xlabel("milliseconds")
axes.set_ylabel("share of the requests")
axes.legend(frameon=False)
axes.grid(alpha=0.3)
figure.savefig("serving.svg", metadata={"Date": None})

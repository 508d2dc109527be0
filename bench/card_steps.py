"""Training steps and decoding as `tape run` plays them on the card, beside PyTorch and JAX, in one run.

    python bench/card_steps.py --tape build/release/tape --out steps.json
    python bench/card_steps.py --tape build/dev/tape --quick          # on the CPU: is all of it right?

PyTorch replays whole steps as one CUDA graph, as it is and with the loss compiled; JAX scans over the steps inside one
jitted call. All in strict f32, from the weights the tape starts from, each step with a batch of its own drawn on the
device and the loss kept; the host waits once in a window of steps. Everybody prepares in a process of its own, and
nobody is timed before all are ready (or late: --ready). A player whose loss does not fall is reported as wrong; where
the batches are the same (mlp) the first ten losses must be equal. Prints a line a player: median of the windows, spread
(interquartile range over median), ratio to ours.
"""
import argparse
import datetime
import functools
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIRST = 10  # losses that are compared


class Training:
    entry, scalar = "train", "loss"

    def wrong(self, first, last, ours):
        """What is wrong with the losses of a player, or nothing."""
        if not (math.isfinite(last) and last < 0.8 * first[0]):
            return f"loss does not fall: {first[0]:.4g}, in the end {last:.4g}"
        if self.same_batches and ours and any(abs(a - b) > 1e-3 * abs(b) for a, b in zip(first, ours)):
            return f"not the losses of the tape: {first[:3]}, tape {ours[:3]}"
        return ""

    def ours_first(self, tape):
        log = tape.run("--repeat", str(FIRST), "--log", "loss,every=1")["log"]
        return [entry["value"] for entry in log]

    def ours_windows(self, tape, count, steps):
        """The first window warms up."""
        log = tape.run("--repeat", str((count + 1) * steps), "--log", f"loss,every={steps}")["log"]
        return [((after["seconds"] - before["seconds"]) / steps * 1e6, after["value"])
                for before, after in zip(log, log[1:])]


class Mlp(Training):
    """bench/mlp.tape; batches one after another from a stream of noisy prototypes that lies on the device."""
    tape, optimizer, decay, rows, same_batches = "bench/mlp.tape", "adam", 0.0, 8192, True

    def __init__(self, batch):
        self.batch = batch
        self.options = ["--set", f"B={batch}"]
        self.inputs = {"rows.x": "x", "rows.y": "y"}

    def data(self):
        rng = np.random.default_rng(1)
        y = rng.integers(0, 10, self.rows).astype(np.int32)
        x = rng.standard_normal((10, 784))[y] * 0.5 + rng.standard_normal((self.rows, 784))
        return {"x": x.astype(np.float32), "y": y}

    def rate(self, k, where, cos):
        return 1e-3 + 0 * k

    def torch_loss(self, torch, w, data, k):
        F = torch.nn.functional
        at = (k.long() * self.batch) % self.rows + torch.arange(self.batch)
        h = F.relu(torch.addmm(w["b1"], data["x"][at], w["w1"]))
        h = F.relu(torch.addmm(w["b2"], h, w["w2"]))
        return F.cross_entropy(torch.addmm(w["b3"], h, w["w3"]), data["y"][at].long())

    def jax_loss(self, jax, w, data, k, key):
        at = (k.astype(int) * self.batch) % self.rows
        x = jax.lax.dynamic_slice_in_dim(data["x"], at, self.batch)
        y = jax.lax.dynamic_slice_in_dim(data["y"], at, self.batch)
        h = jax.nn.relu(x @ w["w1"] + w["b1"])
        h = jax.nn.relu(h @ w["w2"] + w["b2"])
        return jax_cross_entropy(jax, h @ w["w3"] + w["b3"], y)


class Addition(Training):
    """samples/addition.tape: a decoder of three layers on 128 sums of two numbers below 100."""
    tape, optimizer, decay, same_batches = "samples/addition.tape", "adamw", 0.01, False
    layers, heads, batch, options, inputs = 3, 4, 128, [], {}

    def data(self):
        return {}

    def rate(self, k, where, cos):
        base, last, warm, steps = 3e-3, 3e-4, 50, 1500
        falling = base + (last - base) * (where(k < steps, k, steps) - warm) / (steps - warm)
        return where(k <= warm, base * k / warm, falling)

    def lines(self, xp, pair):
        x, y = pair // 100, pair % 100
        z = x + y
        ten, same = xp.full_like(x, 10), xp.full_like(x, 11)
        digits = xp.stack([z % 10, z // 10 % 10, z // 100], 1)
        tokens = xp.stack([x // 10, x % 10, ten, y // 10, y % 10, same, z % 10, z // 10 % 10], 1)
        return tokens, xp.where(((pair * 7919 + 104729) % 10007 % 5 == 0)[:, None], -100, digits)

    def torch_loss(self, torch, w, data, k):
        F = torch.nn.functional
        tokens, labels = self.lines(torch, (torch.rand(self.batch) * 10000).long())
        h = w["table"][tokens] + w["position"]
        rows, length, width = h.shape

        def split(n, weight):
            return (n @ weight).view(rows, length, self.heads, width // self.heads).transpose(1, 2)

        for i in map(str, range(1, self.layers + 1)):
            n = F.layer_norm(h, (width,), w["ln1_g" + i], w["ln1_b" + i])
            q, key, v = (split(n, w[name + i]) for name in ("wq", "wk", "wv"))
            a = F.scaled_dot_product_attention(q, key, v, is_causal=True)
            h = h + a.transpose(1, 2).reshape(rows, length, width) @ w["wo" + i]
            m = F.layer_norm(h, (width,), w["ln2_g" + i], w["ln2_b" + i])
            f = F.relu(torch.addmm(w["up_b" + i], m.reshape(-1, width), w["up" + i]))
            h = h + torch.addmm(w["dn_b" + i], f, w["dn" + i]).view(rows, length, width)
        logits = F.layer_norm(h[:, 5:], (width,), w["ln_g"], w["ln_b"]) @ w["table"].T
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))

    def jax_loss(self, jax, w, data, k, key):
        np_ = jax.numpy
        tokens, labels = self.lines(np_, (jax.random.uniform(key, (self.batch,)) * 10000).astype(int))
        h = w["table"][tokens] + w["position"]
        rows, length, width = h.shape
        hidden = np_.triu(np_.full((length, length), -np_.inf), 1)

        def norm(x, g, b):
            mean = x.mean(-1, keepdims=True)
            return (x - mean) * jax.lax.rsqrt(((x - mean)**2).mean(-1, keepdims=True) + 1e-5) * g + b

        def split(n, weight):
            return (n @ weight).reshape(rows, length, self.heads, width // self.heads).transpose(0, 2, 1, 3)

        for i in map(str, range(1, self.layers + 1)):
            n = norm(h, w["ln1_g" + i], w["ln1_b" + i])
            q, keys, v = (split(n, w[name + i]) for name in ("wq", "wk", "wv"))
            weights = jax.nn.softmax(q @ keys.swapaxes(2, 3) / math.sqrt(width // self.heads) + hidden)
            h = h + (weights @ v).transpose(0, 2, 1, 3).reshape(rows, length, width) @ w["wo" + i]
            m = norm(h, w["ln2_g" + i], w["ln2_b" + i])
            h = h + jax.nn.relu(m @ w["up" + i] + w["up_b" + i]) @ w["dn" + i] + w["dn_b" + i]
        logits = norm(h[:, 5:], w["ln_g"], w["ln_b"]) @ w["table"].T
        return jax_cross_entropy(jax, logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


class MnistCnn(Training):
    """samples/mnist_cnn.tape, on noisy prototypes of the shape of its digits."""
    tape, optimizer, decay, same_batches = "samples/mnist_cnn.tape", "adamw", 0.01, False
    batch, options, inputs = 64, [], {"images": "images", "labels": "labels"}

    def data(self):
        rng = np.random.default_rng(1)
        labels = rng.integers(0, 10, 10000).astype(np.int32)
        images = 0.5 * rng.integers(0, 256, (10, 784))[labels] + 0.5 * rng.integers(0, 256, (10000, 784))
        return {"images": images.astype(np.uint8), "labels": labels}

    def rate(self, k, where, cos):
        base, last, steps = 5e-3, 5e-5, 800
        return last + (base - last) * (1 + cos(math.pi * (where(k < steps, k, steps) - 1) / (steps - 1))) / 2

    def torch_loss(self, torch, w, data, k):
        F = torch.nn.functional
        at = (torch.rand(self.batch) * 8000).long()
        at = at + at // 4 + 1
        x = data["images"][at].float().mul(1 / 255).view(-1, 1, 28, 28)
        for kernels, bias in (("k1", "c1"), ("k2", "c2")):
            x = F.max_pool2d(F.relu(F.conv2d(x, w[kernels], w[bias], padding=1)), 2)
        x = F.dropout(x.flatten(1), 0.25)
        return F.cross_entropy(torch.addmm(w["b3"], x, w["w3"]), data["labels"][at].long())

    def jax_loss(self, jax, w, data, k, key):
        first, second = jax.random.split(key)
        at = (jax.random.uniform(first, (self.batch,)) * 8000).astype(int)
        at = at + at // 4 + 1
        x = (data["images"][at].astype(float) * (1 / 255)).reshape(-1, 1, 28, 28)
        for kernels, bias in (("k1", "c1"), ("k2", "c2")):
            x = jax.lax.conv_general_dilated(x, w[kernels], (1, 1), "SAME")
            x = jax.nn.relu(x + w[bias][:, None, None])
            x = jax.lax.reduce_window(x, -jax.numpy.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        x = x.reshape(self.batch, -1)
        x = jax.numpy.where(jax.random.bernoulli(second, 0.75, x.shape), x / 0.75, 0)
        return jax_cross_entropy(jax, x @ w["w3"] + w["b3"], data["labels"][at])


class Decode:
    """samples/decode.tape: greedy decoding, a token a step, behind a prompt of one token; 1.1 billion bf16 weights on
    the card, the tiny shape on the CPU, where the peer has the tape's weights and must write its tokens."""
    tape, entry, scalar, inputs, optimizer = "samples/decode.tape", "main", "length", {}, None

    def __init__(self, large=True):
        self.large = large
        self.vocab, self.width, self.layers, self.heads, self.groups, self.inner, self.cache, self.new = (
            (32000, 2048, 22, 32, 4, 5632, 1024, 960) if large else (64, 32, 2, 4, 2, 48, 32, 24))
        self.options = ["--set", f"LARGE={int(large)}", "--set", "END=-1"]  # it never ends by itself

    def data(self):
        return {}

    def wrong(self, first, last, ours):
        if not all(0 <= token < self.vocab for token in first):
            return f"not tokens: {first}"
        return f"tokens {first}, tape {ours}" if not self.large and ours and first != ours else ""

    def ours_first(self, tape):
        """Nothing to compare with where the peer has weights of its own."""
        return [0] if self.large else tape.run("--out", "written=-")["outputs"]["written"]["values"][:FIRST]

    def ours_windows(self, tape, count, steps):
        """A window is a text of `length` tokens, its prompt included in the time; the first warms up."""
        count = min(count, 3)
        log = tape.run("--repeat", str(count + 2), "--log", "length,every=1")["log"]
        # A length is seen when the next text is written, the last two together.
        return [((after["seconds"] - before["seconds"]) / after["value"] * 1e6, after["value"])
                for before, after in zip(log, log[1:-1])]

    def weights(self, torch, folder, name):
        """Those of the tape where they are small."""
        shapes = {"table": (self.vocab, self.width), "norm": (self.width,), "head": (self.width, self.vocab)}
        size = self.width // self.heads
        for i in range(1, self.layers + 1):
            shapes |= {f"norm1_{i}": (self.width,), f"wqkv{i}": (self.width, (self.heads + 2 * self.groups) * size),
                       f"wo{i}": (self.width, self.width), f"norm2_{i}": (self.width,),
                       f"gate_up{i}": (self.width, 2 * self.inner), f"down{i}": (self.inner, self.width)}
        if self.large:
            return {key: torch.ones(shape, dtype=torch.bfloat16) if len(shape) == 1 else
                    torch.randn(shape, dtype=torch.bfloat16) * 0.02 for key, shape in shapes.items()}
        file = (folder / f"{name}.safetensors").read_bytes()
        begin = 8 + int.from_bytes(file[:8], "little")
        header = json.loads(file[8:begin])
        return {key: torch.frombuffer(bytearray(file[begin + header[key]["data_offsets"][0]:
                                                     begin + header[key]["data_offsets"][1]]),
                                      dtype=torch.bfloat16).reshape(shape).to(torch.get_default_device())
                for key, shape in shapes.items()}


def jax_cross_entropy(jax, logits, labels):
    """The mean over the labels that are not negative."""
    real = labels >= 0
    chosen = jax.numpy.take_along_axis(jax.nn.log_softmax(logits), jax.numpy.where(real, labels, 0)[:, None], 1)[:, 0]
    return -(chosen * real).sum() / real.sum()


# Name: model, steps of a window on the card.
MODELS = {
    "mlp_64": (functools.partial(Mlp, 64), 500),
    "mlp_512": (functools.partial(Mlp, 512), 300),
    "addition": (Addition, 100),
    "mnist_cnn": (MnistCnn, 100),
    "decode": (Decode, 100),
    "decode_tiny": (functools.partial(Decode, False), 10),
}
QUICK = ["mlp_64", "mlp_512", "addition", "mnist_cnn", "decode_tiny"]
CARD = ["mlp_64", "mlp_512", "addition", "mnist_cnn", "decode"]


def start_weights(folder, model, name):
    """Weights the tape starts from."""
    archive = np.load(folder / f"{name}.npz")
    ending = f".{model.optimizer}.m"
    return {key[:-len(ending)]: archive[key[:-len(ending)]] for key in archive.files if key.endswith(ending)}


class TorchSteps:
    """A whole step: batch, loss, gradients, learning rate, optimizer; on the card one CUDA graph."""

    def __init__(self, model, name, folder, device, compiled):
        import torch
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.manual_seed(1)
        torch.set_default_device(device)
        self.torch, self.model, self.card = torch, model, device == "cuda"
        data = {key: torch.from_numpy(value).to(device) for key, value in model.data().items()}
        start = {key: torch.from_numpy(value).to(device) for key, value in start_weights(folder, model, name).items()}
        self.weights = {key: torch.nn.Parameter(value.clone()) for key, value in start.items()}
        self.k = torch.zeros((), dtype=torch.float32)
        self.lr = torch.zeros(())
        kind = torch.optim.Adam if model.optimizer == "adam" else torch.optim.AdamW
        more = {"capturable": True, "fused": True} if self.card else {}
        self.optimizer = kind(self.weights.values(), lr=self.lr if self.card else 1e-3, weight_decay=model.decay, **more)

        def loss(k):
            return model.torch_loss(torch, self.weights, data, k)

        self.loss_of = torch.compile(loss) if compiled else loss
        if self.card:
            self.capture()
            with torch.no_grad():  # back to the start
                for key, weight in self.weights.items():
                    weight.copy_(start[key])
                    for value in self.optimizer.state[weight].values():
                        value.zero_()
                self.k.zero_()

    def body(self):
        torch = self.torch
        loss = self.loss_of(self.k)
        self.optimizer.zero_grad()
        loss.backward()
        self.k.add_(1)
        rate = self.model.rate(self.k, torch.where, torch.cos)
        if self.card:
            self.lr.copy_(rate)
        else:
            self.optimizer.param_groups[0]["lr"] = float(rate)
        self.optimizer.step()
        return loss.detach()

    def capture(self):
        torch = self.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.body()
        torch.cuda.current_stream().wait_stream(stream)
        self.optimizer.zero_grad()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.body()

    def step(self):
        if self.card:
            self.graph.replay()
        else:
            self.loss = self.body()

    def first(self):
        losses = []
        for _ in range(FIRST):
            self.step()
            losses.append(float(self.loss))
        return losses

    def window(self, steps):
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        loss = float(self.loss)  # waits
        return (time.perf_counter() - start) / steps * 1e6, loss


class TorchDecode:
    """A token a step, on the card a CUDA graph of a step: position and token stay on the device."""

    def __init__(self, model, name, folder, device, compiled):
        import torch
        torch.manual_seed(1)
        torch.set_default_device(device)
        self.torch, self.model, self.card = torch, model, device == "cuda"
        self.w = model.weights(torch, folder, name)
        size = model.width // model.heads
        caches = (model.groups, model.cache, size)
        self.keys = [torch.zeros(caches, dtype=torch.bfloat16) for _ in range(model.layers)]
        self.values = [torch.zeros(caches, dtype=torch.bfloat16) for _ in range(model.layers)]
        self.frequency = 10000.0**(-torch.arange(0, size, 2, dtype=torch.float32) / size)
        self.places = torch.arange(model.cache)
        self.position = torch.zeros(1, dtype=torch.int64)
        self.token = torch.zeros(1, dtype=torch.int64)
        self.play = torch.compile(self.step) if compiled else self.step
        if self.card:
            self.capture()
        self.position.zero_()
        self.token.zero_()

    def norm(self, h, weight):
        x = h.float()
        return (x * self.torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight.float()).bfloat16()

    def turned(self, x):
        angle = self.position.float() * self.frequency
        c, s = angle.cos(), angle.sin()
        a, b = x.float().chunk(2, -1)
        return self.torch.cat([a * c - b * s, b * c + a * s], -1).bfloat16()

    def step(self):
        torch, model, w = self.torch, self.model, self.w
        F = torch.nn.functional
        size = model.width // model.heads
        seen = (self.places <= self.position)[None, None]
        h = w["table"][self.token]
        for i in range(1, model.layers + 1):
            parts = (self.norm(h, w[f"norm1_{i}"]) @ w[f"wqkv{i}"]).view(-1, 1, size)
            turned = self.turned(parts[:model.heads + model.groups])
            self.keys[i - 1].index_copy_(1, self.position, turned[model.heads:])
            self.values[i - 1].index_copy_(1, self.position, parts[model.heads + model.groups:])
            a = F.scaled_dot_product_attention(turned[None, :model.heads], self.keys[i - 1][None], self.values[i - 1][None],
                                               attn_mask=seen[None], enable_gqa=True)
            h = h + a.reshape(1, model.width) @ w[f"wo{i}"]
            gate, up = (self.norm(h, w[f"norm2_{i}"]) @ w[f"gate_up{i}"]).chunk(2, -1)
            h = h + (F.silu(gate) * up) @ w[f"down{i}"]
        logits = (self.norm(h, w["norm"]) @ w["head"]).float()
        self.token.copy_(logits.argmax(-1))
        self.position.copy_((self.position + 1) % model.cache)

    def capture(self):
        torch = self.torch
        with torch.no_grad():
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    self.play()
            torch.cuda.current_stream().wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.play()

    def next(self):
        if self.card:
            self.graph.replay()
        else:
            with self.torch.no_grad():
                self.play()

    def first(self):
        """What follows the token 0, which is the prompt."""
        tokens = []
        for _ in range(FIRST):
            self.next()
            tokens.append(int(self.token))
        return tokens

    def window(self, steps):
        start = time.perf_counter()
        for _ in range(steps):
            self.next()
        token = int(self.token)  # waits
        return (time.perf_counter() - start) / steps * 1e6, token


class JaxSteps:
    """A window of steps: a scan inside one jitted call."""

    def __init__(self, model, name, folder, device, steps):
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        import jax
        jax.config.update("jax_platforms", device)
        jax.config.update("jax_default_matmul_precision", "highest")
        jax.config.update("jax_default_prng_impl", "unsafe_rbg")
        np_ = jax.numpy
        data = {key: np_.asarray(value) for key, value in model.data().items()}
        weights = {key: np_.asarray(value) for key, value in start_weights(folder, model, name).items()}
        zeros = jax.tree.map(np_.zeros_like, weights)
        key = jax.random.key(1)

        def step(state, k):
            w, m, v = state
            loss, gradients = jax.value_and_grad(
                lambda w: model.jax_loss(jax, w, data, k, jax.random.fold_in(key, k.astype(int))))(w)
            t = k + 1
            rate = model.rate(t, np_.where, np_.cos)
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, gradients)
            v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, gradients)
            first, second = rate / (1 - 0.9**t), 1 / np_.sqrt(1 - 0.999**t)
            w = jax.tree.map(lambda w, m, v: w * (1 - rate * model.decay) - first * m / (np_.sqrt(v) * second + 1e-8),
                             w, m, v)
            return (w, m, v), loss

        @functools.partial(jax.jit, donate_argnums=0)
        def play(state, at):
            return jax.lax.scan(step, state, at + np_.arange(steps, dtype=np_.float32))

        self.state, self.k, self.np = (weights, zeros, jax.tree.map(np_.copy, zeros)), 0, np_
        self.steps = steps
        self.play = play

    def first(self):
        return self.run()[:FIRST]

    def run(self):
        self.state, losses = self.play(self.state, self.np.float32(self.k))
        self.k += self.steps
        return [float(value) for value in np.asarray(losses)]

    def window(self, steps):
        start = time.perf_counter()
        self.state, losses = self.play(self.state, self.np.float32(self.k))
        losses = np.asarray(losses)  # waits
        elapsed = time.perf_counter() - start
        self.k += self.steps
        return elapsed / self.steps * 1e6, float(losses[-1])


def work(options):
    """A player's process: a line of its first losses, then a line of windows for each line of standard input."""
    name, who = options.worker.split(":")
    model, steps = MODELS[name][0](), options.steps
    folder = pathlib.Path(options.folder)
    if isinstance(model, Decode):
        player = TorchDecode(model, name, folder, options.device, who == "torch_compiled")
    elif who == "jax":
        player = JaxSteps(model, name, folder, options.device, steps)
    else:
        player = TorchSteps(model, name, folder, options.device, who == "torch_compiled")
    print(json.dumps({"first": player.first()}), flush=True)
    for line in sys.stdin:
        player.window(steps)
        print(json.dumps([player.window(steps) for _ in range(int(line))]), flush=True)


class Worker:
    def __init__(self, name, who, folder, device, steps):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", f"{name}:{who}", "--folder", str(folder), "--device", device,
             "--steps", str(steps)],
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            env=os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "4"})

    def read(self, seconds):
        """A line of JSON, or why there is none."""
        timer = threading.Timer(max(seconds, 0.1), self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        late = not timer.is_alive()
        timer.cancel()
        if line:
            return json.loads(line)
        self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines()
        raise RuntimeError("was not ready in time" if late else ([x for x in lines if "Error" in x] or ["ended"])[-1][:200])

    def windows(self, count):
        print(count, file=self.process.stdin, flush=True)
        return self.read(60)

    def close(self):
        self.process.kill()
        self.process.wait()


class Tape:
    """Ours, in one mode of play."""

    def __init__(self, model, name, folder, options, mode):
        self.command = [options.tape, "run", model.tape, model.entry, "--quiet", "--format", "json", *model.options]
        for column, file in model.inputs.items():
            self.command += ["--in", f"{column}={folder}/{name}.{file}.npy"]
        self.backend = ["--backend", options.backend] + (["--mode", mode] if mode else [])

    def run(self, *more, backend=None):
        done = subprocess.run(self.command + (backend or self.backend) + list(more), capture_output=True, text=True,
                              cwd=ROOT, timeout=120)
        if done.returncode != 0:
            raise RuntimeError((done.stderr.strip().splitlines() or ["failed"])[0][:200])
        return json.loads(done.stdout)


def summary(values):
    low, _, high = statistics.quantiles(values, n=4)
    median = statistics.median(values)
    return {"us": median, "spread": (high - low) / median, "least": min(values), "all": values}


def show_profile(name, profile):
    each = 1e6 / profile["runs"]
    print(f"{name}: {profile['seconds'] * each:.1f} us of kernels a run, by {profile['by']}")
    for line in profile["commands"][:30]:
        print(f"  {line['seconds'] * each:9.2f} us {line['seconds'] / profile['seconds']:6.1%}  {line['plays'] / profile['runs']:5.1f} plays "
              f"{line['roofline']:5.0%} of roofline  {line['text']}  {line['place'].split(' (')[0]}", flush=True)


def prepare(options, folder, models):
    """Data of all models, and the weights their tapes start from."""
    for name, model in models.items():
        for key, value in model.data().items():
            np.save(folder / f"{name}.{key}.npy", value)
        save = f"{folder}/{name}.{'npz' if model.optimizer else 'safetensors'}"
        if not getattr(model, "large", False):
            Tape(model, name, folder, options, "").run("--repeat", "0", "--save", save, backend=["--backend", "cpu"])


def profiles(options):
    """Where the time of the tapes goes."""
    report = []
    with tempfile.TemporaryDirectory() as text:
        folder = pathlib.Path(text)
        models = {name: MODELS[name][0]() for name in options.models}
        prepare(options, folder, models)
        for name, model in models.items():
            steps = 2 if isinstance(model, Decode) else options.steps or MODELS[name][1]
            try:
                ours = Tape(model, name, folder, options, options.modes[0]).run("--repeat", str(steps), "--profile")
                show_profile(name, ours["profile"])
                report.append({"model": name, "wrong": "", "profile": ours["profile"]})
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{name}: {error}")
                report.append({"model": name, "wrong": str(error)})
    return report, {}


def measure(options):
    report = []
    with tempfile.TemporaryDirectory() as text:
        folder = pathlib.Path(text)
        models = {name: MODELS[name][0]() for name in options.models}
        steps = {name: options.steps or MODELS[name][1] for name in options.models}
        prepare(options, folder, models)
        begin = time.monotonic()
        workers = {(name, who): Worker(name, who, folder, options.device, steps[name])
                   for who in options.peers for name, model in models.items() if who != "jax" or model.optimizer}
        players, first, absent = {}, {}, {}
        for name, model in models.items():
            for mode in options.modes:
                if mode == "stream" and getattr(model, "large", False) and len(options.modes) > 1:
                    continue  # takes long, and nobody asks
                who = f"tape {mode}".strip()
                tape = Tape(model, name, folder, options, mode)
                try:
                    first[name, who] = model.ours_first(tape)
                    players[name, who] = functools.partial(model.ours_windows, tape, steps=steps[name])
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    absent[name, who] = str(error)
        for (name, who), worker in workers.items():
            try:
                first[name, who] = worker.read(begin + options.ready - time.monotonic())["first"]
                players[name, who] = worker.windows
            except RuntimeError as error:
                absent[name, who] = str(error)
        print(f"all prepared after {time.monotonic() - begin:.0f} s", flush=True)
        for name, model in models.items():
            times, last = {}, {}
            for _ in range(options.rounds):
                for (of, who), play in players.items():
                    if of != name:
                        continue
                    try:
                        windows = play(options.windows)
                        times.setdefault(who, []).extend(us for us, _ in windows)
                        last[who] = min(windows[-1][1], last.get(who, math.inf))
                    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                        absent[name, who] = str(error)
            ours = next((first[key] for key in first if key[0] == name and key[1].startswith("tape")), [])
            best = min((statistics.median(values) for who, values in times.items() if who.startswith("tape")), default=0)
            for who, values in times.items():
                row = {"model": name, "by": who, "steps": steps[name], **summary(values), "first": first[name, who],
                       "last": last[who], "wrong": model.wrong(first[name, who], last[who], ours)}
                report.append(row)
                print(f"{name:10} {who:16} {row['us']:10.1f} us a step  spread {row['spread']:5.1%}  "
                      f"{row['us'] / best if best else 0:5.2f}x ours  {model.scalar} {row['first'][0]:.3g} to {row['last']:.3g}"
                      f"{'  WRONG: ' + row['wrong'] if row['wrong'] else ''}", flush=True)
            for (of, who), why in absent.items():
                if of == name:
                    print(f"{name:10} {who:16} absent: {why}", flush=True)
        for worker in workers.values():
            worker.close()
    return report, {f"{name}, {who}": why for (name, who), why in absent.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tape", default=str(ROOT / "build/release/tape"), help="the program")
    parser.add_argument("--models", nargs="+", choices=MODELS, help="default: all")
    parser.add_argument("--backend", default="cuda", help="of the tapes")
    parser.add_argument("--device", default="cuda", help="of the peers")
    parser.add_argument("--modes", nargs="*", default=["graph", "stream"], help="of the tapes")
    parser.add_argument("--peers", nargs="*", default=["torch", "torch_compiled", "jax"])
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0, help="of a window; 0: by model")
    parser.add_argument("--ready", type=float, default=60, help="seconds after which a peer counts as absent")
    parser.add_argument("--quick", action="store_true", help="on the CPU, a few steps, nothing compiled")
    parser.add_argument("--profile", action="store_true", help="nothing but where the time of the tapes goes")
    parser.add_argument("--out", help="JSON report")
    for hidden in ("--worker", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options)
    if options.quick:
        options.backend = options.device = "cpu"
        options.modes, options.peers, options.windows, options.steps = [""], ["torch", "jax"], 4, 20
    options.models = options.models or (QUICK if options.quick else CARD)
    options.tape = str(pathlib.Path(options.tape).resolve())
    if "--mode" not in subprocess.run([options.tape, "run", "-h"], capture_output=True, text=True, check=False).stdout:
        options.modes = [""]
    report, absent = profiles(options) if options.profile else measure(options)
    if options.out:
        text = {"schema": 1, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                "command": "python bench/card_steps.py " + " ".join(sys.argv[1:]), "dtype": "f32", "rows": report,
                "absent": absent}
        pathlib.Path(options.out).write_text(json.dumps(text, indent=1) + "\n")
    return 1 if any(row["wrong"] for row in report) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Times one training step of samples as `tape` plays it and as PyTorch does, on the CPU, alternating in one run.

    python bench/training_steps.py --tape build/release/tape --out bench/results/training_steps.json

Run by hand on a quiet machine; needs numpy and torch. Each network is written here a second time, in PyTorch, with the
weights that the tape starts from. Before anything is timed both must agree on one batch: the loss, and every gradient
(what AdamW's first moment holds after one step). Both sides draw their batches, compute the learning rate and update
with AdamW in f32 on every step. PyTorch runs eagerly and through torch.compile, in processes of their own.
"""
import argparse
import datetime
import json
import math
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Addition:
    """samples/addition.tape: a decoder of three layers on 128 sums of two numbers below 100."""
    tape, steps = "samples/addition.tape", 20
    layers, heads, width, batch = 3, 4, 64, 128
    checked = ["tokens", "digits", "hidden"]

    def inputs(self, folder):
        return []

    def prepare(self, folder):
        pass

    def rate(self, k):
        base, last, warm, steps = 3e-3, 3e-4, 50, 1500
        return base * k / warm if k <= warm else base + (last - base) * min(1, (k - warm) / (steps - warm))

    def draw(self):
        pair = (torch.rand(self.batch) * 10000).int()
        x, y = pair // 100, pair % 100
        z = x + y
        ten, same = torch.full_like(x, 10), torch.full_like(x, 11)
        z0, z1, z2 = z % 10, z // 10 % 10, z // 100
        tokens = torch.stack([x // 10, x % 10, ten, y // 10, y % 10, same, z0, z1], 1)
        hidden = (pair * 7919 + 104729) % 10007 % 5 == 0
        return tokens, torch.stack([z0, z1, z2], 1), hidden

    def loss(self, w, tokens, digits, hidden):
        h = w["table"][tokens.long()] + w["position"]
        rows, length, width = h.shape

        def split(n, weight):
            return (n @ weight).view(rows, length, self.heads, width // self.heads).transpose(1, 2)

        for i in map(str, range(1, self.layers + 1)):
            n = F.layer_norm(h, (width,), w["ln1_g" + i], w["ln1_b" + i])
            q, k, v = (split(n, w[name + i]) for name in ("wq", "wk", "wv"))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            h = h + a.transpose(1, 2).reshape(rows, length, width) @ w["wo" + i]
            m = F.layer_norm(h, (width,), w["ln2_g" + i], w["ln2_b" + i])
            f = F.relu(torch.addmm(w["up_b" + i], m.reshape(-1, width), w["up" + i]))
            h = h + torch.addmm(w["dn_b" + i], f, w["dn" + i]).view(rows, length, width)
        n = F.layer_norm(h[:, 5:], (width,), w["ln_g"], w["ln_b"])
        logits = n @ w["table"].T
        labels = torch.where(hidden[:, None], -100, digits.long())
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


class Cnn:
    """samples/cnn.tape: two convolutions and a dense layer on 64 images of 8x8."""
    tape, steps = "samples/cnn.tape", 50
    batch, side, scale, drop, base, last_step = 64, 8, 16, 0.5, 3e-3, 1500
    checked = ["pixels", "labels", "objective:mask"]

    def inputs(self, folder):
        return []

    def prepare(self, folder):
        self.images = torch.from_numpy(np.load(ROOT / "samples/data/train_images.npy"))
        self.labels = torch.from_numpy(np.load(ROOT / "samples/data/train_labels.npy"))

    def rate(self, k):
        last = self.base / 100
        return last + (self.base - last) * (1 + math.cos(math.pi * min(1, (k - 1) / (self.last_step - 1)))) / 2

    def draw(self):
        rows = torch.randint(len(self.images), (self.batch,))
        return self.images[rows], self.labels[rows], None

    def loss(self, w, pixels, labels, mask):
        x = pixels.float().mul(1 / self.scale).view(-1, 1, self.side, self.side)
        for kernels, bias in (("k1", "c1"), ("k2", "c2")):
            x = F.max_pool2d(F.relu(F.conv2d(x, w[kernels], w[bias], padding=1)), 2)
        x = x.flatten(1)
        x = F.dropout(x, self.drop) if mask is None else x * mask / (1 - self.drop)
        return F.cross_entropy(torch.addmm(w["b3"], x, w["w3"]), labels.long())


class MnistCnn(Cnn):
    """samples/mnist_cnn.tape: the same on 28x28, with random images; a step takes as long with any."""
    tape, steps = "samples/mnist_cnn.tape", 20
    side, scale, drop, base, last_step = 28, 255, 0.25, 5e-3, 800
    checked = ["pixels", "truth", "objective:mask"]

    def inputs(self, folder):
        rng = np.random.default_rng(1)
        np.save(folder / "images.npy", rng.integers(0, 256, (10000, 784)).astype(np.uint8))
        np.save(folder / "labels.npy", rng.integers(0, 10, 10000).astype(np.int32))
        return ["--in", f"images={folder}/images.npy", "--in", f"labels={folder}/labels.npy"]

    def prepare(self, folder):
        self.images = torch.from_numpy(np.load(folder / "images.npy"))
        self.labels = torch.from_numpy(np.load(folder / "labels.npy"))


SAMPLES = {"addition": Addition, "cnn": Cnn, "mnist_cnn": MnistCnn}


class Tape:
    """A sample as the program plays it."""

    def __init__(self, program, sample, folder):
        self.command = [program, "run", str(ROOT / sample.tape), "train", "--backend", "cpu", "--quiet", "--format", "json"]
        self.command += sample.inputs(folder)
        self.folder = folder

    def run(self, repeat, *more):
        done = subprocess.run(self.command + ["--repeat", str(repeat), *more], capture_output=True, text=True, cwd=ROOT)
        if done.returncode != 0:
            sys.exit(f"{' '.join(done.args)}\n{done.stderr}")
        return json.loads(done.stdout)

    def milliseconds(self, steps, threads):
        report = self.run(steps, "--threads", str(threads))
        return report["seconds"] / report["runs"] * 1e3


class Torch:
    """A sample in PyTorch, with the weights of an archive."""

    def __init__(self, sample, folder, compiled):
        archive = np.load(folder / "start.npz")
        names = [name[:-len(".adamw.m")] for name in archive.files if name.endswith(".adamw.m")]
        self.weights = {name: torch.nn.Parameter(torch.from_numpy(archive[name].copy())) for name in names}
        self.sample, self.k = sample, 0
        sample.prepare(folder)
        self.optimizer = torch.optim.AdamW(self.weights.values(), lr=1e-3, weight_decay=0.01, fused=True)
        self.loss = torch.compile(sample.loss) if compiled else sample.loss

    def step(self):
        self.k += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.sample.rate(self.k)
        self.optimizer.zero_grad()
        self.loss(self.weights, *self.sample.draw()).backward()
        self.optimizer.step()

    def milliseconds(self, steps):
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        return (time.perf_counter() - start) / steps * 1e3


def check(sample, tape, folder):
    """One step from equal weights on the same batch: loss, gradients."""
    tape.run(0, "--save", f"{folder}/start.npz")
    names = [*sample.checked, "loss"]
    wanted = [text for i, name in enumerate(names) for text in ("--out", f"{name}={folder}/out{i}.npy")]
    tape.run(1, "--load", f"{folder}/start.npz", "--save", f"{folder}/after.npz", *wanted)
    *batch, played = (torch.from_numpy(np.load(folder / f"out{i}.npy")) for i in range(len(names)))
    model = Torch(sample, folder, False)
    loss = sample.loss(model.weights, *batch)
    loss.backward()
    played, after = played.item(), np.load(folder / "after.npz")
    worst = 0
    for name, weight in model.weights.items():
        gradient, ours = weight.grad.numpy(), after[name + ".adamw.m"] / (1 - 0.9)
        worst = max(worst, float(np.abs(gradient - ours).max() / max(np.abs(gradient).max(), 1e-6)))
    if not (abs(played - loss.item()) <= 3e-5 and worst <= 1e-3):
        sys.exit(f"{sample.tape}: not the same network: loss {played} and {loss.item()}, gradients differ by {worst:.2g}")
    return {"parameters": sum(weight.numel() for weight in model.weights.values()), "loss_tape": played,
            "loss_torch": loss.item(), "worst_gradient": worst}


class Worker:
    """PyTorch in a process of its own, with its number of threads: a line with a number of steps in, milliseconds out."""

    def __init__(self, name, folder, threads, compiled):
        command = [sys.executable, __file__, "--worker", name, "--folder", str(folder), "--threads", str(threads)]
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command + (["--compiled"] if compiled else []), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)

    def milliseconds(self, steps):
        try:
            print(steps, file=self.process.stdin, flush=True)
            return float(self.process.stdout.readline())
        except (OSError, ValueError):
            self.errors.seek(0)
            lines = self.errors.read().strip().splitlines()
            raise RuntimeError(([line for line in lines if "Error" in line] or lines or ["it ended"])[-1]) from None

    def close(self):
        self.process.kill()
        self.process.wait()


def work(options):
    torch.set_num_threads(options.threads[0])
    torch.manual_seed(1)
    model = Torch(SAMPLES[options.worker](), pathlib.Path(options.folder), options.compiled)
    for line in sys.stdin:
        print(model.milliseconds(int(line)), flush=True)


def summary(values):
    return {"median": statistics.median(values), "spread": statistics.stdev(values) / statistics.mean(values),
            "least": min(values), "all": values}


def measure(name, options):
    sample = SAMPLES[name]()
    with tempfile.TemporaryDirectory() as text:
        folder = pathlib.Path(text)
        tape = Tape(options.tape, sample, folder)
        report = {"sample": sample.tape, "steps": sample.steps, "batch": sample.batch, **check(sample, tape, folder)}
        players = {}  # (who, threads): a function of steps
        workers, absent = [], {}
        for threads in options.threads:
            players["tape", threads] = lambda steps, threads=threads: tape.milliseconds(steps, threads)
            for who, compiled in (("torch_eager", False), ("torch_compile", True)):
                worker = Worker(name, folder, threads, compiled)
                workers.append(worker)
                try:
                    worker.milliseconds(5)  # warms up and compiles
                    players[who, threads] = worker.milliseconds
                except RuntimeError as error:
                    absent[f"{who}, {threads} threads"] = str(error)
        times = {player: [] for player in players}
        for _ in range(options.repetitions):
            for player, play in players.items():
                times[player].append(play(sample.steps))
        for worker in workers:
            worker.close()
    report["milliseconds"] = [{"by": who, "threads": threads, **summary(values)} for (who, threads), values in times.items()]
    if absent:
        report["absent"] = absent
    for row in report["milliseconds"]:
        print(f"{name:10} {row['by']:14} {row['threads']} threads {row['median']:8.3f} ms  spread {row['spread']:.0%}")
    return report


def first_line(*command):
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.strip().splitlines()[0]


def machine():
    cpu = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return {"cpu": cpu[0] if cpu else platform.processor(), "processors": len(cpu), "system": platform.platform(),
            "load": [float(part) for part in open("/proc/loadavg").read().split()[:3]]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tape", default=str(ROOT / "build/release/tape"), help="the program")
    parser.add_argument("--samples", nargs="+", choices=SAMPLES, default=[name for name, sample in SAMPLES.items() if (ROOT / sample.tape).exists()])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--out", help="JSON report")
    for hidden in ("--worker", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--compiled", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options)
    options.tape = str(pathlib.Path(options.tape).resolve())
    report = {"schema": 1, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "machine": machine(), "commit": first_line("git", "rev-parse", "HEAD"),
              "command": "python bench/training_steps.py " + " ".join(sys.argv[1:]),
              "versions": {"tape": first_line(options.tape, "--version"), "python": platform.python_version(),
                           "torch": torch.__version__, "numpy": np.__version__},
              "dtype": "f32", "optimizer": "AdamW (torch: fused)", "samples": [measure(name, options) for name in options.samples]}
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

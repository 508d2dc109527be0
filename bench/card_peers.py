"""The rows of bench_cuda beside PyTorch, on one card, in one run.

    bench/card_peers.py BENCH_CUDA OUT.json [TOPIC]...

Plays bench_cuda, then the same work through PyTorch inside a CUDA graph of several launches (so that no host cost is in
it), inputs rotated where they would stay in the cache, median of 20 replays. Prints a line a row and writes both.
"""

import json
import statistics
import subprocess
import sys

import torch
import torch.nn.functional as F

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False


def graphed(play, passes=10, replays=20):
    """Median microseconds of one pass of play(i)."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(3):
            play(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(passes):
            play(i)
    times = []
    for _ in range(replays + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / passes)
    return statistics.median(times[3:])


def rows():
    x = torch.randn(8192, 8192, device="cuda")
    y = torch.empty_like(x)
    yield "softmax f32 8192x8192", lambda i: torch.softmax(x, 1)
    yield "layer norm f32 8192x8192", lambda i: F.layer_norm(x, (8192,))
    yield "transpose f32 8192x8192", lambda i: y.copy_(x.t())
    yield "copy f32 8192x8192", lambda i: y.copy_(x)
    yield "row sum f32 8192x8192", lambda i: x.sum(1)
    yield "column sum f32 8192x8192", lambda i: x.sum(0)
    yield "full sum f32 8192x8192", lambda i: x.sum()


def sorting():
    for count in (1 << 20, 1 << 24):
        keys = torch.randn(count, device="cuda")
        yield f"sort f32 {count}", lambda i, keys=keys: torch.sort(keys)
    values = torch.randn(1 << 24, device="cuda")
    yield f"cumsum f32 {1 << 24}", lambda i: torch.cumsum(values, 0)
    table = torch.zeros(50000, 64, device="cuda")
    at = torch.randint(0, 50000, (1 << 20,), device="cuda")
    source = torch.randn(1 << 20, 64, device="cuda")
    yield "scatter_add f32 1048576x64 into 50000x64", lambda i: table.index_add_(0, at, source)


def chain(x, b):
    t = torch.tanh(x * b + x)
    return (t - b) * 0.5


def main():
    program, out, topics = sys.argv[1], sys.argv[2], sys.argv[3:]
    subprocess.run([program, "--json", out, *topics], check=False)
    with open(out, encoding="utf-8") as file:
        lines = json.load(file)
    peers = {}
    for family in (rows, sorting):
        for name, play in family():
            try:
                peers[name] = graphed(play)
            except Exception as error:  # a peer that cannot be captured is left out by name
                print(f"{name}: no peer: {error}".splitlines()[0])
        torch.cuda.empty_cache()
    for line in lines:
        if line["name"] in peers:
            line["pytorch_us"] = peers[line["name"]]
            print(f"{line['name']:<58} ours {line['us']:10.2f} us, PyTorch {line['pytorch_us']:10.2f} us, "
                  f"{line['pytorch_us'] / line['us']:.2f}x")
    report = {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "rows": lines,
        "pytorch_us": peers,
    }
    with open(out, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()

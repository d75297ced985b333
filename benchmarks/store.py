"""Pictures in shards of an object store, behind a line of limited speed.

    python benchmarks/store.py [--samples 100000] [--shards 200] [--rate 50] [--steps 0]

An S3-compatible server on loopback (moto) holds the shards; what it sends goes through a relay with
so many MB a second. Printed are, by the clock:

    first     seconds from nothing until the first batch of 256 is there
    epoch     bytes through the relay in one epoch (or so many steps), as a share of the pictures'
    cache     bytes on the disk, and those through the relay in the same steps once more
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from subquad.plan import PlanSettings
from subquad.record.trust import give
from subquad_datasets.imagenet import Config
from subquad_datasets.imagenet.dataset import ImageNet
from subquad_datasets.shards.index import index_path, write_index

BATCH = 256
BUCKET = "pictures"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
KEYS["AWS_DEFAULT_REGION"] = "us-east-1"


def jpeg(number: int) -> bytes:
    """Noise of 96 x 96 pixels, some 9 KB."""
    from PIL import Image

    pixels = np.random.default_rng(number).integers(0, 256, (96, 96, 3), np.uint8)
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=80)
    return stream.getvalue()


def make_shards(folder: Path, samples: int, shards: int) -> None:
    """Shards of TRAIN, and one of TEST, with 100 different pictures."""
    pictures = [jpeg(number) for number in range(100)]
    names = [f"train-{number:05d}.tar" for number in range(shards)]
    for first, name in enumerate([*names, "val-00000.tar"]):
        with tarfile.open(folder / name, "w") as tar:
            for number in range(first, samples, shards):
                files = {"jpg": pictures[number % 100], "cls": b"%d" % (number % 10)}
                for ending, data in files.items():
                    member = tarfile.TarInfo(f"{number:08d}.{ending}")
                    member.size = len(data)
                    tar.addfile(member, BytesIO(data))
        write_index(folder / name)


def relay(target: int, rate: float, port: Any, sent: Any) -> None:
    """Pass connections on to a port of this machine; what comes back at a limited speed."""
    due = 0.0

    async def passed(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: bool
    ) -> None:
        nonlocal due
        while data := await reader.read(1 << 16):
            if back:
                sent.value += len(data)
                due = max(due, time.monotonic()) + len(data) / rate
                await asyncio.sleep(due - time.monotonic())
            writer.write(data)
            await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", target)
        ways = (passed(reader, other_writer, False), passed(other_reader, writer, True))
        await asyncio.gather(*ways, return_exceptions=True)

    async def serve() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        port.value = server.sockets[0].getsockname()[1]
        await server.serve_forever()

    asyncio.run(serve())


def serve_store(port: Any) -> None:
    """An S3-compatible server, in a process of its own."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    port.value = server.get_host_and_port()[1]
    time.sleep(1e9)


@contextmanager
def started(work: Any, *given: Any) -> Iterator[int]:
    """The port of what serves in a process of its own."""
    context = multiprocessing.get_context("spawn")
    port = context.Value("i", 0)
    process = context.Process(target=work, args=(*given, port), daemon=True)
    process.start()
    while not port.value:
        time.sleep(0.05)
    try:
        yield port.value
    finally:
        process.terminate()


def relay_to(target: int, rate: float, sent: Any, port: Any) -> None:
    relay(target, rate, port, sent)


def lines(root: Path, given: argparse.Namespace) -> Iterator[str]:
    import boto3

    shards = root / "shards"
    shards.mkdir()
    make_shards(shards, given.samples, given.shards)
    os.environ.update(KEYS)
    sent = multiprocessing.get_context("spawn").Value("d", 0.0)
    with started(serve_store) as store, started(relay_to, store, 1e6 * given.rate, sent) as port:
        client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{store}")
        client.create_bucket(Bucket=BUCKET)
        for path in sorted(shards.iterdir()):
            client.upload_file(str(path), BUCKET, path.name)
        os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
        start = time.perf_counter()
        give(f"s3://{BUCKET}")
        config = Config(path=f"s3://{BUCKET}", size=32, window=None, cache_gb=given.cache)
        dataset = ImageNet(config, root / "prepared")
        dataset.prepare()
        split = dataset.load("train")
        plan = split.plan(PlanSettings(BATCH, 0, None, 1))
        steps = given.steps or plan.total_steps
        split.fetch(plan.batch(0)[1], epoch=0, seed=0)
        yield f"first batch   after {time.perf_counter() - start:.1f} s"
        yield f"until then    {sent.value / 1e6:.1f} MB"
        for words in ("an epoch", "once more"):
            sent.value = 0.0
            own = 0
            start = time.perf_counter()
            for step in range(steps):
                _, indices = plan.batch(step)
                own += int(split.shards.rows["size"][split.rows[indices]].sum())
                assert not split.fetch(indices, epoch=0, seed=0)["bad"].any()
            seconds = time.perf_counter() - start
            yield (
                f"{words}      {sent.value / own:.3f} of the {own / 1e6:.0f} MB of {steps} "
                f"steps, in {seconds:.0f} s"
            )
        files = [path.stat() for path in (root / "prepared").rglob("*") if path.name.isdigit()]
        kept = sum(stat.st_blocks * 512 for stat in files)
        whole = sum(path.stat().st_size for path in shards.glob("train-*.tar"))
        yield f"kept          {kept / 1e6:.0f} MB on the disk, of {whole / 1e6:.0f} MB of shards"
        indices = sum(index_path(path).stat().st_size for path in shards.glob("train-*.tar"))
        yield f"indices       {indices / 1e6:.1f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--shards", type=int, default=200)
    parser.add_argument("--rate", type=float, default=50.0, help="MB a second")
    parser.add_argument("--cache", type=float, default=0.3, help="GB that are kept")
    parser.add_argument("--steps", type=int, default=0, help="0: a whole epoch")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        for line in lines(Path(root), given):
            print(line, flush=True)


if __name__ == "__main__":
    main()

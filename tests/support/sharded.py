"""Small pictures in archives and shards."""

import io
import tarfile
from pathlib import Path

from pictures import encoded

from subquad_datasets.shards.index import write_index
from subquad_datasets.shards.source import find_pictures
from subquad_datasets.shards.write import plan_shards, write_shards


def jpeg(label: int, number: int) -> bytes:
    """A picture, another one for each label and number."""
    return encoded(1000 * label + number, "JPEG")


def picture_folder(root: Path, classes: int = 3, each: int = 10, first: int = 0) -> Path:
    """`root/<class>/<name>.JPEG`, `each` in every class."""
    for label in range(classes):
        folder = root / f"n{label:02d}"
        folder.mkdir(parents=True)
        for number in range(each):
            (folder / f"n{label:02d}_{number}.JPEG").write_bytes(jpeg(label, first + number))
    return root


def tar_of(members: dict[str, bytes], **options) -> bytes:
    """A tar with these files."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", **options) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def shard_folder(root: Path, folder: Path, split: str = "train", size: int = 7) -> Path:
    """Shards of a folder of pictures."""
    pictures = find_pictures(root)
    classes = sorted({picture.kind for picture in pictures})
    list(
        write_shards(
            folder, split, classes, plan_shards(folder, split, pictures, classes, size, 0), 1
        )
    )
    return folder


def indexed(shard: Path, members: dict[str, bytes]) -> Path:
    """A shard of these members with its index."""
    shard.write_bytes(tar_of(members))
    write_index(shard)
    return shard

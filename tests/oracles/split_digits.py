"""Cuts the UCI optical digits into the four files of samples/data: rows whose index is a multiple of 5 are the test set.

usage: split_digits.py IMAGES.npy LABELS.npy OUTPUT_FOLDER

IMAGES is u8[1797, 64], values 0 to 16; LABELS is i32[1797]. Writes train_images (1,437 rows), train_labels,
test_images (360 rows) and test_labels, dtypes and order kept.
"""
import pathlib
import sys

import numpy as np


def main() -> None:
    images, labels = np.load(sys.argv[1]), np.load(sys.argv[2])
    folder = pathlib.Path(sys.argv[3])
    assert images.shape == (1797, 64) and images.dtype == np.uint8 and images.max() <= 16
    assert labels.shape == (1797,) and labels.dtype == np.int32
    test = np.arange(len(labels)) % 5 == 0
    for name, rows in (("train", ~test), ("test", test)):
        np.save(folder / f"{name}_images.npy", images[rows])
        np.save(folder / f"{name}_labels.npy", labels[rows])


if __name__ == "__main__":
    main()

"""A binary heap whose order among equal keys is that of C++'s `std::priority_queue`.

Detections often have equal scores; which of them comes first shows in the results.
"""

from typing import Any


class MaxHeap:
    """Items by key, the largest first."""

    def __init__(self) -> None:
        self._items: list[tuple[Any, Any]] = []

    def __len__(self) -> int:
        return len(self._items)

    def push(self, key: Any, item: Any) -> None:
        """Insert an item; it rises past smaller keys only."""
        self._items.append((key, item))
        self._rise(len(self._items) - 1, (key, item))

    def pop(self) -> tuple[Any, Any]:
        """Remove the largest key with its item: the hole sinks to a leaf, the last item rises from there.

        The textbook's way, to let the last item sink from the top, orders equal keys otherwise.
        """
        items = self._items
        top, last = items[0], items.pop()
        if not items:
            return top
        hole, size = 0, len(items)
        while 2 * hole + 2 < size:
            child = 2 * hole + 2
            if items[child][0] < items[child - 1][0]:
                child -= 1
            items[hole] = items[child]
            hole = child
        if 2 * hole + 2 == size:
            items[hole] = items[size - 1]
            hole = size - 1
        self._rise(hole, last)
        return top

    def _rise(self, hole: int, entry: tuple[Any, Any]) -> None:
        items = self._items
        while hole and items[(hole - 1) // 2][0] < entry[0]:
            items[hole] = items[(hole - 1) // 2]
            hole = (hole - 1) // 2
        items[hole] = entry

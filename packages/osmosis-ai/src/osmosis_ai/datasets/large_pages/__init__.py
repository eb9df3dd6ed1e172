"""Reading text columns of Parquet files with large pages, cell by cell.

pyarrow holds up to three pages of a column at once, and a page has at least 1,024 cells with common writers: too much where cells are
long. What is read here is what such files have: plain and dictionary encoding, in columns that are not nested.
"""

from osmosis_ai.datasets.large_pages.cells import can_stream, cells
from osmosis_ai.datasets.large_pages.footer import Chunk, read_chunks
from osmosis_ai.datasets.large_pages.pages import chunk_pages
from osmosis_ai.datasets.large_pages.thrift import PageError

__all__ = ["Chunk", "PageError", "can_stream", "cells", "chunk_pages", "read_chunks"]

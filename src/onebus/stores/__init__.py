"""Where logs live: one contract, many stores."""

from onebus.stores.base import Store, StoreOptions
from onebus.stores.urls import create_store

__all__ = ["Store", "StoreOptions", "create_store"]

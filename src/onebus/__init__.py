"""One message bus from the browser tab to the Spark job."""

__version__ = "0.1.0"

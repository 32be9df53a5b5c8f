"""Say what to install where PySpark is missing."""

from gramian.errors import NotSupported
from gramian.validation import format_install_advice

try:
    import pyarrow as _pyarrow  # noqa: F401
    import pyspark as _pyspark  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in ("pyspark", "pyarrow"):
        raise
    raise NotSupported("PySpark, to work on a cluster", "no such package", format_install_advice("spark")) from None

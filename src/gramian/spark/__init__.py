"""The same recipes on an Apache Spark cluster (the extra `gramian[spark]`, and Java 17).

There is no second implementation of the mathematics: the cluster sums the Gram matrix, maps the row solver of alternating
least squares, and maps batch recommendation.
"""

from gramian.spark import requirement as _requirement  # noqa: F401  (first: it says what to install)
from gramian.spark.batch import recommend as recommend
from gramian.spark.events import SparkInteractions as SparkInteractions
from gramian.spark.events import interactions as interactions
from gramian.spark.fitting import fit as fit
from gramian.spark.gram_sums import gram as gram
from gramian.spark.splits import SparkSplit as SparkSplit
from gramian.spark.splits import leave_last_split as leave_last_split
from gramian.spark.splits import strong_split as strong_split
from gramian.spark.splits import temporal_split as temporal_split
from gramian.spark.splits import weak_split as weak_split

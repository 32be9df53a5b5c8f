"""The same recipes on an Apache Spark cluster (the extra `gramian[spark]`, and Java 17).

No second implementation of the mathematics: Spark sums the Gram, maps the row solver and maps batch recommendation.
"""

from gramian.spark import split as split
from gramian.spark.events import SparkInteractions as SparkInteractions
from gramian.spark.events import interactions as interactions
from gramian.spark.fitting import fit as fit
from gramian.spark.lists import recommend as recommend
from gramian.spark.split import SparkSplit as SparkSplit
from gramian.spark.sums import gram as gram

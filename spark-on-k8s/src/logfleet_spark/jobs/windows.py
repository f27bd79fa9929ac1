"""Windows of event times: of a fixed length, sliding, or sessions.

Windows of whole days may follow the days of a time zone.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from logfleet_spark.jobs.settings import interval_ms

DAY_MS = 86_400_000
START, END = "window_start", "window_end"


@dataclass(frozen=True, slots=True)
class Windows:
    """length, slide, session: Spark intervals ("1 hour").

    slide: None means that windows do not overlap. session: the pause that ends a window; length and
    slide are ignored then.

    zone: name of a time zone. Windows whose length and slide are whole days start at local midnight
    there, even on days of 23 or 25 hours. Shorter windows and sessions do not depend on it.
    """

    length: str = "1 hour"
    slide: str | None = None
    session: str | None = None
    zone: str = "UTC"

    @property
    def are_local(self) -> bool:
        lengths = (self.length, self.slide or self.length)
        is_days = all(interval_ms(each) % DAY_MS == 0 for each in lengths)
        return is_days and not self.session and self.zone not in {"UTC", "Etc/UTC", "Z"}

    @property
    def are_whole_seconds(self) -> bool:
        lengths = (self.length, self.slide or self.length)
        return not self.session and all(interval_ms(each) % 1000 == 0 for each in lengths)

    def timed(self, rows: DataFrame, time: str, watermark: str) -> DataFrame:
        """Return the rows with a watermark on the column `time`, to which the windows refer."""
        if self.are_local:
            rows = rows.withColumn(time, F.from_utc_timestamp(time, self.zone))
        return rows.withWatermark(time, watermark)

    def of(self, time: str) -> Column:
        """Return the column to group by: the window of a row, as the struct `window`."""
        if self.session:
            return F.session_window(time, self.session).alias("window")
        return F.window(time, self.length, self.slide).alias("window")

    def bounds(self) -> list[Column]:
        """Return START and END of the struct `window` as columns."""
        bounds = {START: F.col("window.start"), END: F.col("window.end")}
        if self.are_local:
            bounds = {name: F.to_utc_timestamp(each, self.zone) for name, each in bounds.items()}
        return [each.alias(name) for name, each in bounds.items()]

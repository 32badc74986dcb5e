"""Order lines of a web shop: read from a file, or made by a seeded generator.

A line is CSV as in UCI's "Online Retail" data: invoice, stock code, description, quantity,
invoice date, unit price, customer, country. An invoice starting with ``C`` is a cancellation
and has negative quantities.
"""

from __future__ import annotations

import csv
import io
import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

from cli.lines import open_lines
from cli.output import CommandError

HEADER = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country"
_COMMAS = HEADER.count(",")

_COUNTRIES = (
    ("United Kingdom", 900),
    ("Germany", 18),
    ("France", 16),
    ("EIRE", 15),
    ("Spain", 6),
    ("Netherlands", 6),
    ("Belgium", 5),
    ("Switzerland", 5),
    ("Portugal", 4),
    ("Australia", 4),
    ("Norway", 3),
    ("Japan", 2),
)
_ADJECTIVES = ("RED", "WHITE", "VINTAGE", "SMALL", "LARGE", "RETRO", "WOODEN", "GLASS", "SET OF 6")
_NOUNS = ("LANTERN", "TEA CUP", "LUNCH BAG", "CAKE STAND", "DOORMAT", "CLOCK", "HEART, HANGING")
_CATALOGUE_SIZE = 900
_CANCELLED_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class OrderLine:
    """One line as it is sent: ``key`` is the invoice, ``value`` the CSV line itself."""

    key: bytes
    value: bytes


def read_orders(path: Path) -> Iterator[OrderLine]:
    """The lines of a CSV file with a header line, gzipped or not. CommandError for another file."""
    with open_lines(path) as lines:
        if lines.readline().strip().decode("utf-8-sig", "replace") != HEADER:
            raise CommandError(f"{path} holds no order lines: its first line must be {HEADER}")
        for number, line in enumerate(lines, start=2):
            value = line.rstrip(b"\r\n")
            if value.count(b",") < _COMMAS:
                if not value:
                    continue
                raise CommandError(f"{path}, line {number}: fewer columns than the header has")
            if not _adds_up(value):
                raise CommandError(
                    f"{path}, line {number}: not UTF-8, or Quantity or UnitPrice is no number"
                )
            yield OrderLine(value.partition(b",")[0], value)


def _adds_up(line: bytes) -> bool:
    """Whether quantity and price are numbers. Counted from the end, since the description before
    them is the column that holds commas; only where that fails the line is parsed as CSV."""
    try:
        text = line.decode()
        columns = text.rsplit(",", 5)
        try:
            int(columns[1])
            return Decimal(columns[3]).is_finite()
        except (ValueError, ArithmeticError):
            row = next(csv.reader([text]))
            int(row[3])
            return Decimal(row[5]).is_finite()
    except (ValueError, ArithmeticError, LookupError):
        return False


def generate_orders(seed: int, lines: int) -> Iterator[OrderLine]:
    """``lines`` order lines in time order; the same seed gives the same lines everywhere."""
    return itertools.islice(_invoices(random.Random(seed)), lines)


def _invoices(rng: random.Random) -> Iterator[OrderLine]:
    names, weights = zip(*_COUNTRIES, strict=True)
    catalogue = [
        (
            f"{20000 + number}{rng.choice(('', '', 'A', 'B'))}",
            f"{rng.choice(_ADJECTIVES)} {rng.choice(_NOUNS)}",
            Decimal(rng.randrange(29, 1500)) / 100,
        )
        for number in range(_CATALOGUE_SIZE)
    ]
    moment = datetime(2026, 1, 5, 8, 0)
    for invoice in itertools.count(600000):
        moment += timedelta(seconds=rng.randrange(5, 180))
        if moment.hour >= 20:
            moment = moment.replace(hour=8, minute=0, second=0) + timedelta(days=1)
        cancelled = rng.random() < _CANCELLED_SHARE
        number = f"C{invoice}" if cancelled else str(invoice)
        customer = f"{rng.randrange(12346, 18288)}.0" if rng.random() < 0.75 else ""
        country = rng.choices(names, weights)[0]
        for _ in range(min(200, 1 + int(rng.expovariate(1 / 20)))):
            code, description, price = catalogue[int(rng.random() ** 2 * _CATALOGUE_SIZE)]
            quantity = 1 + int(rng.expovariate(1 / 9))
            yield OrderLine(
                number.encode(),
                _csv_line(
                    number,
                    code,
                    description,
                    str(-quantity if cancelled else quantity),
                    f"{moment:%Y-%m-%d %H:%M:%S}",
                    str(price),
                    customer,
                    country,
                ),
            )


def _csv_line(*fields: str) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(fields)
    return out.getvalue().encode()


@dataclass(slots=True)
class OrderFigures:
    """The figures that the demo prints of the orders; sums are decimal, so that they are exact."""

    lines: int = 0
    quantity: int = 0
    revenue: Decimal = Decimal(0)
    revenue_by_country: dict[str, Decimal] = field(default_factory=dict)
    lines_by_country: Counter[str] = field(default_factory=Counter)

    def add(self, values: Iterable[bytes]) -> None:
        """Count the order lines of some record values."""
        by_country = self.revenue_by_country
        for row in csv.reader(value.decode() for value in values):
            quantity, price, country = int(row[3]), Decimal(row[5]), row[7]
            amount = quantity * price
            self.lines += 1
            self.quantity += quantity
            self.revenue += amount
            self.lines_by_country[country] += 1
            by_country[country] = by_country.get(country, Decimal(0)) + amount

    def top_countries(self, count: int = 5) -> list[tuple[str, int, Decimal]]:
        """(country, lines, revenue), the highest revenue first."""
        ranked = sorted(self.revenue_by_country.items(), key=lambda item: (-item[1], item[0]))
        return [(name, self.lines_by_country[name], amount) for name, amount in ranked[:count]]

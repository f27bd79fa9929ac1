"""The turn of a transaction coordinator."""

from logfleet.coordinators.turn import Turn
from logfleet.transactions.records import TransactionRecord

TransactionTurn = Turn[TransactionRecord]

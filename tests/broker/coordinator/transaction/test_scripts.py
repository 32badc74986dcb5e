"""Golden scripts of the coordinator: what it answers, and what becomes of the transaction.

``tests/support/transaction_scripts.py`` describes the language.
"""

from __future__ import annotations

import pytest

from tests.support.transaction_scripts import Script

SCRIPTS = {
    # ------------------------------------------------------------------- ending
    "a commit": """
        init                    -> 0:0
        add 0:0 a0 b1           -> ok
        add 0:0 a0              -> ok
        records                 -> 2        # what is there already is not recorded again
        verify 0:0 b1 a0        -> ok
        verify 0:0 a0 c0        -> a0 ok, c0 TRANSACTION_ABORTABLE
        commit 0:0              -> ok 0:1
        state                   -> PrepareCommit 0:1 a0 b1
        due                     -> commit 0:1 a0 b1
        verify 0:1 a0           -> CONCURRENT_TRANSACTIONS
        add 0:1 a0              -> CONCURRENT_TRANSACTIONS
        init                    -> CONCURRENT_TRANSACTIONS
        markers a0
        due                     -> commit 0:1 b1
        state                   -> PrepareCommit 0:1 a0 b1
        markers b1
        due                     -> nothing
        state                   -> CompleteCommit 0:1
        verify 0:1 a0           -> a0 TRANSACTION_ABORTABLE
        add 0:0 a0              -> PRODUCER_FENCED
        add 0:1 a0              -> ok
    """,
    "an old client ends twice": """
        version 1
        init                    -> 0:0
        commit 0:0              -> INVALID_TXN_STATE
        abort 0:0               -> INVALID_TXN_STATE
        add 0:0 a0              -> ok
        commit 0:0              -> ok
        commit 0:0              -> CONCURRENT_TRANSACTIONS
        abort 0:0               -> INVALID_TXN_STATE
        markers
        commit 0:0              -> ok
        abort 0:0               -> INVALID_TXN_STATE
        add 0:0 a0              -> ok
        abort 0:0               -> ok
        abort 0:0               -> CONCURRENT_TRANSACTIONS
        commit 0:0              -> INVALID_TXN_STATE
        markers
        abort 0:0               -> ok
        commit 0:0              -> INVALID_TXN_STATE
        state                   -> CompleteAbort 0:0
    """,
    "a client of version 2 ends twice": """
        init                    -> 0:0
        add 0:0 a0              -> ok
        commit 0:0              -> ok 0:1
        commit 0:0              -> CONCURRENT_TRANSACTIONS
        abort 0:0               -> INVALID_TXN_STATE
        abort 0:1               -> CONCURRENT_TRANSACTIONS  # of the next transaction
        markers
        commit 0:0              -> ok 0:1
        abort 0:0               -> INVALID_TXN_STATE
        commit 0:1              -> INVALID_TXN_STATE
        add 0:1 a0              -> ok
        commit 0:0              -> PRODUCER_FENCED
        abort 0:1               -> ok 0:2
        abort 0:1               -> CONCURRENT_TRANSACTIONS
        commit 0:1              -> INVALID_TXN_STATE
        markers
        abort 0:1               -> ok 0:2
        commit 0:1              -> INVALID_TXN_STATE
        commit 0:2              -> INVALID_TXN_STATE
        abort 0:0               -> PRODUCER_FENCED
        abort 0:3               -> PRODUCER_FENCED
        state                   -> CompleteAbort 0:2
    """,
    "a client of version 2 aborts what nothing was added to": """
        init                    -> 0:0
        abort 0:1               -> PRODUCER_FENCED
        abort 0:0               -> ok 0:1
        due                     -> nothing
        records                 -> 3
        state                   -> CompleteAbort 0:1
        abort 0:0               -> ok 0:1
        abort 0:1               -> ok 0:2
        add 0:2 a0              -> ok
        commit 0:2              -> ok 0:3
        markers
        abort 0:3               -> ok 0:4
        state                   -> CompleteAbort 0:4
        commit 0:3              -> INVALID_TXN_STATE
    """,
    "strangers": """
        add 0:0 a0              -> INVALID_PRODUCER_ID_MAPPING
        verify 0:0 a0           -> INVALID_PRODUCER_ID_MAPPING
        commit 0:0              -> INVALID_PRODUCER_ID_MAPPING
        state                   -> TRANSACTIONAL_ID_NOT_FOUND
        init                    -> 0:0
        add 7:0 a0              -> INVALID_PRODUCER_ID_MAPPING
        verify 7:0 a0           -> INVALID_PRODUCER_ID_MAPPING
        commit 7:0              -> INVALID_PRODUCER_ID_MAPPING
        add 0:1 a0              -> PRODUCER_FENCED
        verify 0:1 a0           -> PRODUCER_FENCED
        commit 0:1              -> PRODUCER_FENCED
        init expect=7:0         -> PRODUCER_FENCED
        init expect=0:1         -> PRODUCER_FENCED
        version 1
        commit 7:0              -> INVALID_PRODUCER_ID_MAPPING
        commit 0:1              -> PRODUCER_FENCED
        state                   -> Empty 0:0
        records                 -> 1
    """,
    "nothing is added": """
        init                    -> 0:0
        add 0:0                 -> ok
        records                 -> 1
        state                   -> Empty 0:0
    """,
    # ------------------------------------------------------------------- replacing
    "a transactional id that two producers use": """
        init                    -> 0:0
        add 0:0 a0              -> ok
        init                    -> CONCURRENT_TRANSACTIONS
        due                     -> abort 0:1 a0
        commit 0:0              -> INVALID_TXN_STATE
        init                    -> CONCURRENT_TRANSACTIONS
        markers
        init                    -> 0:2
        state                   -> Empty 0:2
        commit 0:0              -> PRODUCER_FENCED
        abort 0:0               -> PRODUCER_FENCED
        abort 0:1               -> PRODUCER_FENCED
        init expect=0:0         -> PRODUCER_FENCED
        add 0:2 a0              -> ok
        init expect=0:0         -> PRODUCER_FENCED
        init expect=0:1         -> PRODUCER_FENCED
        add 0:0 a0              -> PRODUCER_FENCED
        verify 0:0 a0           -> PRODUCER_FENCED
        commit 0:2              -> ok 0:3
    """,
    "an old client is replaced": """
        version 1
        init                    -> 0:0
        add 0:0 a0              -> ok
        init                    -> CONCURRENT_TRANSACTIONS
        due                     -> abort 0:1 a0
        abort 0:0               -> PRODUCER_FENCED
        init expect=0:0         -> PRODUCER_FENCED
        markers
        abort 0:0               -> PRODUCER_FENCED
        init expect=0:0         -> PRODUCER_FENCED
        init                    -> 0:2
    """,
    "a replaced client aborts before the next one has begun": """
        init                    -> 0:0
        add 0:0 a0              -> ok
        init                    -> CONCURRENT_TRANSACTIONS
        markers
        abort 0:0               -> ok 0:1
        add 0:1 a0              -> ok
        init                    -> CONCURRENT_TRANSACTIONS
        markers
        init                    -> 0:3
        add 0:1 a0              -> PRODUCER_FENCED
        abort 0:1               -> PRODUCER_FENCED
    """,
    # ------------------------------------------------------------------- going on (KIP-360)
    "a client goes on after an error": """
        init                    -> 0:0
        init expect=0:0         -> 0:1
        init expect=0:0         -> 0:1      # it has not heard the answer
        reload
        init expect=0:0         -> 0:1      # nor has another coordinator
        init expect=0:1         -> 0:2
        init expect=0:0         -> PRODUCER_FENCED
        add 0:2 a0              -> ok
        init expect=0:1         -> PRODUCER_FENCED  # an old copy of its request
        state                   -> Ongoing 0:2 a0
        init expect=0:2         -> CONCURRENT_TRANSACTIONS
        due                     -> abort 0:3 a0
        init expect=0:2         -> CONCURRENT_TRANSACTIONS
        markers
        init expect=0:2         -> 0:3
        state                   -> Empty 0:3
    """,
    "a client goes on that has not heard how its transaction ended": """
        init                    -> 0:0
        add 0:0 a0              -> ok
        commit 0:0              -> ok 0:1
        init expect=0:0         -> CONCURRENT_TRANSACTIONS
        init expect=0:1         -> CONCURRENT_TRANSACTIONS
        markers
        init expect=0:0         -> 0:1
        init expect=0:1         -> 0:2
    """,
    "a client goes on whose transactional id was forgotten": """
        init expect=0:5         -> 0:0
    """,
    "a new client replaces one that goes on": """
        init                    -> 0:0
        init expect=0:0         -> 0:1
        init                    -> 0:2
        init expect=0:0         -> PRODUCER_FENCED
        init expect=0:1         -> PRODUCER_FENCED
        init expect=0:2         -> 0:3
    """,
    # ------------------------------------------------------------------- time
    "a client ends after its time is over": """
        init timeout=5000       -> 0:0
        add 0:0 a0              -> ok
        pass 4999
        state                   -> Ongoing 0:0 a0
        pass 1
        state                   -> PrepareAbort 0:1 a0
        due                     -> abort 0:1 a0
        commit 0:0              -> INVALID_TXN_STATE
        abort 0:0               -> CONCURRENT_TRANSACTIONS
        markers
        commit 0:0              -> INVALID_TXN_STATE
        add 0:0 a0              -> PRODUCER_FENCED
        abort 0:0               -> ok 0:1
        add 0:1 a0              -> ok
        pass 4999
        commit 0:1              -> ok 0:2
        pass 5000
        due                     -> commit 0:2 a0
        state                   -> PrepareCommit 0:2 a0
    """,
    "an old client ends after its time is over": """
        version 1
        init timeout=5000       -> 0:0
        add 0:0 a0              -> ok
        pass 5000
        due                     -> abort 0:1 a0
        commit 0:0              -> PRODUCER_FENCED
        abort 0:0               -> PRODUCER_FENCED
        markers
        commit 0:0              -> PRODUCER_FENCED
        init                    -> 0:2
    """,
    "the time of a transaction goes on with another coordinator": """
        init timeout=5000       -> 0:0
        add 0:0 a0              -> ok
        pass 3000
        reload
        pass 1999
        state                   -> Ongoing 0:0 a0
        reload
        pass 1
        state                   -> PrepareAbort 0:1 a0
    """,
    "a transaction whose abort is refused is aborted later": """
        init timeout=5000       -> 0:0
        add 0:0 a0              -> ok
        refuse NOT_ENOUGH_REPLICAS
        pass 5000
        state                   -> Ongoing 0:0 a0
        commit 0:0              -> NOT_ENOUGH_REPLICAS
        accept
        state                   -> PrepareAbort 0:1 a0
    """,
    "an end that is refused": """
        init                    -> 0:0
        add 0:0 a0              -> ok
        commit 0:0              -> ok 0:1
        refuse NOT_ENOUGH_REPLICAS
        markers
        state                   -> PrepareCommit 0:1 a0
        accept
        state                   -> CompleteCommit 0:1
    """,
    # ------------------------------------------------------------------- epochs that run out
    "the last epoch is followed by another producer id": """
        init                    -> 0:0
        epoch 32765
        add 0:32765 a0          -> ok
        commit 0:32765          -> ok 0:32766
        markers
        add 0:32766 a0          -> ok
        commit 0:32766          -> ok 1:0
        due                     -> commit 0:32767 a0
        state                   -> PrepareCommit 0:32767 a0
        add 1:0 a0              -> CONCURRENT_TRANSACTIONS
        commit 0:32766          -> CONCURRENT_TRANSACTIONS
        abort 0:32766           -> INVALID_TXN_STATE
        reload
        due                     -> commit 0:32767 a0
        markers
        state                   -> CompleteCommit 1:0
        commit 0:32766          -> ok 1:0
        commit 0:32765          -> INVALID_PRODUCER_ID_MAPPING
        add 0:32766 a0          -> INVALID_PRODUCER_ID_MAPPING
        add 1:0 a0              -> ok
    """,
    "an empty abort with the last epoch": """
        init                    -> 0:0
        epoch 32766
        abort 0:32766           -> ok 1:0
        state                   -> CompleteAbort 1:0
        abort 0:32766           -> ok 1:0
        abort 1:0               -> ok 1:1
        abort 0:32766           -> INVALID_PRODUCER_ID_MAPPING
    """,
    "a client goes on with the last epoch": """
        init                    -> 0:0
        epoch 32766
        init expect=0:32766     -> 1:0
        init expect=0:32766     -> 1:0
        reload
        init expect=0:32766     -> 1:0
        init expect=1:0         -> 1:1
        init expect=0:32766     -> PRODUCER_FENCED
    """,
    "a new client after the last epoch": """
        init                    -> 0:0
        epoch 32766
        init                    -> 1:0
        init expect=0:32766     -> PRODUCER_FENCED
        commit 0:32766          -> INVALID_PRODUCER_ID_MAPPING
    """,
    "a transaction with the last epoch is aborted by the coordinator": """
        init timeout=5000       -> 0:0
        epoch 32766
        add 0:32766 a0          -> ok
        pass 5000
        due                     -> abort 0:32767 a0
        abort 0:32766           -> CONCURRENT_TRANSACTIONS
        markers
        state                   -> CompleteAbort 0:32767
        commit 0:32766          -> INVALID_TXN_STATE
        abort 0:32767           -> PRODUCER_FENCED  # no client may have the epoch of the markers
        commit 0:32767          -> PRODUCER_FENCED
        add 0:32767 a0          -> PRODUCER_FENCED
        verify 0:32767 a0       -> PRODUCER_FENCED
        init expect=0:32767     -> PRODUCER_FENCED
        abort 0:32766           -> ok 1:0
        state                   -> CompleteAbort 1:0
        abort 0:32766           -> ok 1:0
        add 1:0 a0              -> ok
    """,
    "a client goes on after the coordinator has used the epoch of markers": """
        init timeout=5000       -> 0:0
        epoch 32766
        add 0:32766 a0          -> ok
        pass 5000
        markers
        init expect=0:32766     -> 1:0
        init expect=0:32766     -> 1:0
    """,
    "an old client with the last epoch is replaced": """
        version 1
        init                    -> 0:0
        epoch 32766
        add 0:32766 a0          -> ok
        commit 0:32766          -> ok
        markers
        add 0:32766 a0          -> ok
        init                    -> CONCURRENT_TRANSACTIONS
        due                     -> abort 0:32767 a0
        markers
        init                    -> 1:0
    """,
    # ------------------------------------------------------------------- crashes around EndTxn
    "the coordinator is lost before the decision is committed": """
        init                    -> 0:0
        add 0:0 a0              -> ok
        hold
        commit 0:0              -> nothing
        due                     -> nothing
        reload 2
        state                   -> Ongoing 0:0 a0
        commit 0:0              -> ok 0:1
        due                     -> commit 0:1 a0
    """,
    "the coordinator is lost after the decision, which its successor has": """
        init                    -> 0:0
        add 0:0 a0              -> ok
        hold
        commit 0:0              -> nothing
        reload
        due                     -> commit 0:1 a0
        commit 0:0              -> CONCURRENT_TRANSACTIONS
        markers
        commit 0:0              -> ok 0:1
    """,
    "the coordinator and the client are lost, and the decision with them": """
        init                    -> 0:0
        add 0:0 a0              -> ok
        hold
        commit 0:0              -> nothing
        reload 2
        init                    -> CONCURRENT_TRANSACTIONS
        due                     -> abort 0:1 a0
        markers
        init                    -> 0:2
        abort 0:0               -> PRODUCER_FENCED
    """,
    "the coordinator is lost, and comes back, while some markers are written": """
        init                    -> 0:0
        add 0:0 a0 b1           -> ok
        commit 0:0              -> ok 0:1
        markers a0
        reload
        due                     -> commit 0:1 a0 b1     # nobody knows of the first one
        markers b1
        reload
        markers
        state                   -> CompleteCommit 0:1
    """,
    "the coordinator is lost before the end is recorded": """
        init                    -> 0:0
        add 0:0 a0              -> ok
        commit 0:0              -> ok 0:1
        hold
        markers
        records                 -> 4
        reload 3
        state                   -> PrepareCommit 0:1 a0
        due                     -> commit 0:1 a0
        markers
        state                   -> CompleteCommit 0:1
    """,
    "the client is lost after the decision": """
        init                    -> 0:0
        add 0:0 a0              -> ok
        commit 0:0              -> ok 0:1
        init                    -> CONCURRENT_TRANSACTIONS
        markers
        init                    -> 0:2
        commit 0:0              -> PRODUCER_FENCED
        commit 0:1              -> PRODUCER_FENCED
    """,
    "the first record of a transaction is lost with the coordinator": """
        init                    -> 0:0
        hold
        reload 1
        verify 0:0 a0           -> a0 TRANSACTION_ABORTABLE
        add 0:0 a0              -> ok
    """,
    "the transactional id is lost with the coordinator": """
        hold
        reload 0
        add 0:0 a0              -> INVALID_PRODUCER_ID_MAPPING
        init expect=0:0         -> 0:0
    """,
    # ------------------------------------------------------------------- levels that change
    "the level rises within a transaction": """
        version 0
        init                    -> 0:0
        add 0:0 a0              -> ok
        version 2
        commit 0:0              -> ok 0:1
        due                     -> commit 0:1 a0
        markers
        commit 0:0              -> ok 0:1
    """,
    "the level falls within a transaction": """
        init                    -> 0:0
        add 0:0 a0              -> ok
        commit 0:0              -> ok 0:1
        version 1
        markers
        state                   -> CompleteCommit 0:1
        commit 0:0              -> PRODUCER_FENCED
        add 0:1 a0              -> ok
        commit 0:1              -> ok
    """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name: str) -> None:
    Script().run(SCRIPTS[name])

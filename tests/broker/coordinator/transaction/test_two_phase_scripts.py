"""Golden scripts of transactions in two phases: what is kept, and who may end it.

``tests/support/transaction_scripts.py`` describes the language.
"""

from __future__ import annotations

import pytest

from tests.support.transaction_scripts import Script

SCRIPTS = {
    "a prepared transaction is committed by a client that comes back": """
        init 2pc                -> 0:0
        add 0:0 a0 b1           -> ok
        pass 10000000
        state                   -> Ongoing 0:0 a0 b1
        init 2pc keep           -> 0:1 keeps 0:0
        init 2pc keep           -> 0:2 keeps 0:0
        state                   -> Ongoing 0:0 a0 b1
        reload
        add 0:0 c0              -> PRODUCER_FENCED
        verify 0:0 a0           -> PRODUCER_FENCED
        add 0:1 c0              -> PRODUCER_FENCED
        add 0:2 c0              -> INVALID_TXN_STATE
        add 7:2 c0              -> INVALID_PRODUCER_ID_MAPPING
        commit 0:0              -> PRODUCER_FENCED
        commit 0:1              -> PRODUCER_FENCED
        commit 7:2              -> INVALID_PRODUCER_ID_MAPPING
        commit 0:2              -> ok 0:3
        due                     -> commit 0:1 a0 b1     # above the epoch of the records
        commit 0:2              -> CONCURRENT_TRANSACTIONS
        abort 0:2               -> INVALID_TXN_STATE
        init 2pc keep           -> CONCURRENT_TRANSACTIONS
        markers
        commit 0:2              -> ok 0:3
        state                   -> CompleteCommit 0:3
        add 0:3 a0              -> ok
    """,
    "an outside coordinator commits again": """
        init 2pc                -> 0:0
        add 0:0 a0              -> ok
        commit 0:0              -> ok 0:1
        markers
        init 2pc keep           -> 0:2
        state                   -> CompleteCommit 0:2
        commit 0:2              -> ok 0:2
        commit 0:0              -> PRODUCER_FENCED
        commit 0:1              -> PRODUCER_FENCED
        init 2pc keep           -> 0:3
        commit 0:3              -> ok 0:3
        abort 0:3               -> ok 0:4   # of the next transaction
        commit 0:4              -> INVALID_TXN_STATE
        init 2pc                -> 0:5
        state                   -> Empty 0:5
        commit 0:5              -> INVALID_TXN_STATE
    """,
    "an outside coordinator aborts again": """
        init 2pc                -> 0:0
        add 0:0 a0              -> ok
        abort 0:0               -> ok 0:1
        markers
        init 2pc keep           -> 0:2
        state                   -> CompleteAbort 0:2
        commit 0:2              -> INVALID_TXN_STATE
        abort 0:2               -> ok 0:3
    """,
    "a transaction that is not of a two-phase commit cannot be kept": """
        init                    -> 0:0
        add 0:0 a0              -> ok
        init keep               -> INVALID_TXN_STATE
        init 2pc keep           -> INVALID_TXN_STATE
        commit 0:0              -> ok 0:1
        init keep               -> CONCURRENT_TRANSACTIONS
        markers
        init keep               -> 0:2
        init keep expect=0:2    -> INVALID_REQUEST
    """,
    "a prepared transaction that nobody finishes is aborted by whoever begins": """
        init 2pc                -> 0:0
        add 0:0 a0              -> ok
        init 2pc keep           -> 0:1 keeps 0:0
        init                    -> CONCURRENT_TRANSACTIONS
        due                     -> abort 0:1 a0
        commit 0:1              -> INVALID_TXN_STATE
        markers
        state                   -> CompleteAbort 0:2    # above the epoch that a client had
        abort 0:1               -> ok 0:2
        init                    -> 0:3
    """,
    "a kept transaction while epochs run out": """
        init 2pc                -> 0:0
        epoch 32764
        add 0:32764 a0          -> ok
        init 2pc keep           -> 0:32765 keeps 0:32764
        init 2pc keep           -> 0:32766 keeps 0:32764
        init 2pc keep           -> 1:0 keeps 0:32764
        commit 0:32766          -> PRODUCER_FENCED
        commit 0:32764          -> PRODUCER_FENCED
        add 0:32764 b0          -> PRODUCER_FENCED
        commit 1:0              -> ok 1:1
        due                     -> commit 0:32765 a0
        reload
        due                     -> commit 0:32765 a0
        commit 1:0              -> CONCURRENT_TRANSACTIONS
        markers
        state                   -> CompleteCommit 1:1
        commit 1:0              -> ok 1:1
    """,
    "a kept transaction is ended with the last epoch": """
        init 2pc                -> 0:0
        epoch 32765
        add 0:32765 a0          -> ok
        init 2pc keep           -> 0:32766 keeps 0:32765
        abort 0:32766           -> ok 1:0
        due                     -> abort 0:32766 a0
        abort 0:32766           -> CONCURRENT_TRANSACTIONS
        markers
        state                   -> CompleteAbort 1:0
        abort 0:32766           -> ok 1:0
    """,
    "a kept transaction with two later producer ids": """
        init 2pc                -> 0:0
        epoch 32766
        add 0:32766 a0          -> ok
        init 2pc keep           -> 1:0 keeps 0:32766
        commit 1:0              -> ok 1:1
        due                     -> commit 0:32767 a0
        markers
        state                   -> CompleteCommit 1:1
    """,
    "a kept transaction is aborted when epochs have run out": """
        init 2pc                -> 0:0
        epoch 32765
        add 0:32765 a0          -> ok
        init 2pc keep           -> 0:32766 keeps 0:32765
        init                    -> CONCURRENT_TRANSACTIONS
        due                     -> abort 0:32766 a0
        markers
        state                   -> CompleteAbort 0:32767
        init                    -> 1:0
    """,
    "a kept transaction of a cluster with old transactions": """
        version 1
        init 2pc                -> 0:0
        add 0:0 a0              -> ok
        init 2pc keep           -> 0:1 keeps 0:0
        commit 0:0              -> PRODUCER_FENCED
        commit 0:1              -> ok
        due                     -> commit 0:1 a0
        commit 0:1              -> CONCURRENT_TRANSACTIONS
        markers
        state                   -> CompleteCommit 0:1
        commit 0:1              -> ok
        add 0:1 a0              -> ok
        commit 0:1              -> ok
        due                     -> commit 0:1 a0
    """,
    "a kept transaction of a cluster with the oldest transactions": """
        version 0
        init 2pc                -> 0:0
        add 0:0 a0              -> ok
        init 2pc keep           -> 0:1 keeps 0:0
        reload
        init 2pc keep           -> 0:2 keeps 0:0
        init                    -> CONCURRENT_TRANSACTIONS
        reload
        due                     -> abort 0:1 a0
        markers
        state                   -> CompleteAbort 0:3
    """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name: str) -> None:
    Script().run(SCRIPTS[name])

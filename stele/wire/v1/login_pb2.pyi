from stele.wire.v1 import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LogInRequest(_message.Message):
    __slots__ = ("mechanism", "token", "dialogue_id")
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    DIALOGUE_ID_FIELD_NUMBER: _ClassVar[int]
    mechanism: str
    token: bytes
    dialogue_id: bytes
    def __init__(self, mechanism: _Optional[str] = ..., token: _Optional[bytes] = ..., dialogue_id: _Optional[bytes] = ...) -> None: ...

class LogInResponse(_message.Message):
    __slots__ = ("error", "message", "token", "dialogue_id", "session", "session_lifetime_ms", "mechanisms")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    DIALOGUE_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_LIFETIME_MS_FIELD_NUMBER: _ClassVar[int]
    MECHANISMS_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    token: bytes
    dialogue_id: bytes
    session: str
    session_lifetime_ms: int
    mechanisms: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., token: _Optional[bytes] = ..., dialogue_id: _Optional[bytes] = ..., session: _Optional[str] = ..., session_lifetime_ms: _Optional[int] = ..., mechanisms: _Optional[_Iterable[str]] = ...) -> None: ...

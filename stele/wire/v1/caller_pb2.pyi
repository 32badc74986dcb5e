from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class OnBehalfOf(_message.Message):
    __slots__ = ("principal", "client_id", "address", "cluster_id", "repeats", "may_exceed_quota", "by_delegation_token")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPEATS_FIELD_NUMBER: _ClassVar[int]
    MAY_EXCEED_QUOTA_FIELD_NUMBER: _ClassVar[int]
    BY_DELEGATION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    principal: str
    client_id: str
    address: str
    cluster_id: str
    repeats: bool
    may_exceed_quota: bool
    by_delegation_token: bool
    def __init__(self, principal: _Optional[str] = ..., client_id: _Optional[str] = ..., address: _Optional[str] = ..., cluster_id: _Optional[str] = ..., repeats: _Optional[bool] = ..., may_exceed_quota: _Optional[bool] = ..., by_delegation_token: _Optional[bool] = ...) -> None: ...

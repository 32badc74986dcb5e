"""Names of calls that laws listen to and faults hold back. The quorum's are in its runtime."""

from __future__ import annotations

ALTER_PARTITION = "/stele.v1.Controller/AlterPartition"
REGISTER_BROKER = "/stele.v1.Controller/RegisterBroker"
READ_INDEX = "/stele.v1.Controller/ReadIndex"
DELETE_RECORDS = "/stele.v1.Admin/DeleteRecords"
CREATE_ACLS = "/stele.v1.Admin/CreateAcls"
DELETE_ACLS = "/stele.v1.Admin/DeleteAcls"
DESCRIBE_GROUPS = "/stele.v1.Groups/DescribeGroups"

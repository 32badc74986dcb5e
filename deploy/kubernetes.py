"""Kubernetes manifests of a cluster: ``python -m deploy.kubernetes | kubectl apply -f -``.

Controllers and brokers are two StatefulSets of the same shape. A pod's ordinal is its node id:
controllers are 1, 2, …, brokers 101, 102, … (``ordinals.start``, Kubernetes 1.31).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

from security.authority import MAPPING_RULES

FILE: Final = Path(__file__).parent / "k8s" / "stele.yaml"
FIRST_BROKER: Final = 101


@dataclass(frozen=True, slots=True)
class Wish:
    """What may differ from cluster to cluster."""

    namespace: str = "stele"
    image: str = "stele:latest"
    cluster_id: str = "c3RlbGUta3ViZXJuZXRlcw"
    controllers: int = 3
    brokers: int = 3
    controller_storage: str = "4Gi"
    broker_storage: str = "100Gi"
    secret: str = ""
    """The Secret with ca.pem and node-<id>.pem, as ``stele certs create`` makes them. Empty: every
    listener is plaintext."""

    @property
    def certificates(self) -> str:
        """The command that makes the files of the secret."""
        domain = f"{self.namespace}.svc.cluster.local"
        hosts = {
            **{n: f"stele-controller-{n}.stele-controller.{domain}" for n in self.controller_ids},
            **{n: f"stele-broker-{n}.stele-broker.{domain}" for n in self.broker_ids},
        }
        # A client's first connection goes to the Service of any broker.
        also = dict.fromkeys(self.broker_ids, f",stele.{domain}")
        nodes = " ".join(f"--node {n}={host}{also.get(n, '')}" for n, host in hosts.items())
        return f"stele certs create {nodes} --user admin"

    @property
    def controller_ids(self) -> range:
        return range(1, 1 + self.controllers)

    @property
    def broker_ids(self) -> range:
        return range(FIRST_BROKER, FIRST_BROKER + self.brokers)


_HEAD: Final = """\
# Made by python -m deploy.kubernetes; change that, or give it options.
apiVersion: v1
kind: Namespace
metadata:
  name: $namespace
"""

_BOOTSTRAP: Final = """\
# Any ready broker, for the first connection of clients.
apiVersion: v1
kind: Service
metadata:
  name: stele
  namespace: $namespace
  labels: {app: stele}
spec:
  selector: {app: stele, role: broker}
  ports:
    - {name: kafka, port: 9092}
    - {name: grpc, port: 9192}
"""

_SET: Final = """\
# Peers find one another by name before they are ready: otherwise nobody would become ready.
apiVersion: v1
kind: Service
metadata:
  name: stele-$role
  namespace: $namespace
  labels: {app: stele, role: $role}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {app: stele, role: $role}
  ports:
$service_ports
---
# One at a time: a majority of the controllers, and min.insync.replicas=2 of 3, must go on.
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: stele-$role
  namespace: $namespace
  labels: {app: stele, role: $role}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {app: stele, role: $role}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: stele-$role
  namespace: $namespace
  labels: {app: stele, role: $role}
spec:
  serviceName: stele-$role
  replicas: $replicas
  ordinals: {start: $start}
  # All at once at the first start: a controller is ready when most of them are there. Updates still
  # go on one by one, each when the one before is ready.
  podManagementPolicy: Parallel
  updateStrategy: {type: RollingUpdate}
  selector:
    matchLabels: {app: stele, role: $role}
  template:
    metadata:
      labels: {app: stele, role: $role}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "9404"
    spec:
      # Leaderships are handed over first. After a SIGKILL the logs would have to be recovered.
      terminationGracePeriodSeconds: 60
      securityContext:
        runAsNonRoot: true
        runAsUser: 1000
        runAsGroup: 1000
        fsGroup: 1000
        seccompProfile: {type: RuntimeDefault}
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector:
                  matchLabels: {app: stele, role: $role}
      containers:
        - name: stele
          image: $image
          securityContext:
            allowPrivilegeEscalation: false
            capabilities: {drop: [ALL]}
          env:
            - name: STELE_NODE_ID
              valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
            - name: POD_NAME
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - {name: STELE_CLUSTER_ID, value: $cluster_id}
            - {name: STELE_PROCESS_ROLES, value: $role}
            - {name: STELE_METRICS_LISTENER, value: "0.0.0.0:9404"}
            - name: STELE_CONTROLLER_QUORUM_VOTERS
              value: $voters
$role_environment
          ports:
            - {name: metrics, containerPort: 9404}
$container_ports
          # Alive: a restart would not help. Ready: it does its work. A long recovery is neither
          # killed nor given clients.
          startupProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 2
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: metrics}
            periodSeconds: 5
            timeoutSeconds: 5
          resources:
            requests: {cpu: $cpu, memory: $memory}
          volumeMounts:
            - {name: data, mountPath: /var/lib/stele/data}
$security_mount  volumeClaimTemplates:
    - metadata:
        name: data
      spec:
        accessModes: [ReadWriteOnce]
        resources:
          requests: {storage: $storage}
"""

_SECURITY_HEAD: Final = """\
# The nodes' keys are in the Secret $secret:
#   $certificates
#   mv certs/ca.key certs/user-admin.pem .    (one signs, one may do everything: no pod needs them)
#   kubectl -n $namespace create secret generic $secret --from-file=certs
# Each pod can read the keys of all nodes. Users are made over the listener NODES with
# user-admin.pem: stele users add NAME.
"""

_SECURITY_MOUNT: Final = """\
            - {name: security, mountPath: /etc/stele/security, readOnly: true}
      volumes:
        - name: security
          secret: {secretName: $secret, defaultMode: 0440}"""

_SECURE_ENVIRONMENT: Final = """
            - name: STELE_LISTENER_SECURITY_PROTOCOL_MAP
              value: "CLIENTS:SASL_SSL,NODES:SSL,CONTROLLER:SSL"
            - {name: STELE_INTER_BROKER_LISTENER_NAME, value: NODES}
            - name: STELE_SSL_KEYSTORE_LOCATION
              value: "/etc/stele/security/node-$$(STELE_NODE_ID).pem"
            - {name: STELE_SSL_TRUSTSTORE_LOCATION, value: /etc/stele/security/ca.pem}
            - name: STELE_SSL_PRINCIPAL_MAPPING_RULES
              value: "$mapping_rules"
            - {name: STELE_LISTENER_NAME_CONTROLLER_SSL_CLIENT_AUTH, value: required}
            - name: STELE_AUTHORIZER_CLASS_NAME
              value: org.apache.kafka.metadata.authorizer.StandardAuthorizer
            - {name: STELE_SUPER_USERS, value: "User:nodes;User:admin"}"""

_SECURE_BROKER_ENVIRONMENT: Final = """
            - {name: STELE_SASL_ENABLED_MECHANISMS, value: SCRAM-SHA-512}
            - {name: STELE_LISTENER_NAME_NODES_SSL_CLIENT_AUTH, value: required}"""

_SECURE_LISTENERS: Final = """\
            - name: STELE_LISTENERS
              value: "CLIENTS://0.0.0.0:9092,NODES://0.0.0.0:9094"
            - name: STELE_ADVERTISED_LISTENERS
              value: "CLIENTS://$host:9092,NODES://$host:9094"
            - name: STELE_GRPC_LISTENERS
              value: "CLIENTS://0.0.0.0:9192,NODES://0.0.0.0:9194"
            - name: STELE_GRPC_ADVERTISED_LISTENERS
              value: "CLIENTS://$host:9192,NODES://$host:9194"
"""

_PLAIN_LISTENERS: Final = """\
            - name: STELE_LISTENERS
              value: "PLAINTEXT://0.0.0.0:9092"
            - name: STELE_ADVERTISED_LISTENERS
              value: "PLAINTEXT://$host:9092"
            - name: STELE_GRPC_LISTENERS
              value: "PLAINTEXT://0.0.0.0:9192"
            - name: STELE_GRPC_ADVERTISED_LISTENERS
              value: "PLAINTEXT://$host:9192"
"""

_CONTROLLER_ENVIRONMENT: Final = """\
            - {name: STELE_CONTROLLER_LISTENER, value: "0.0.0.0:9093"}"""

_BROKER_ENVIRONMENT: Final = """\
            - {name: STELE_DEFAULT_REPLICATION_FACTOR, value: "$factor"}
            - {name: STELE_MIN_INSYNC_REPLICAS, value: "$min_insync"}
            - {name: STELE_OFFSETS_TOPIC_REPLICATION_FACTOR, value: "$factor"}
            - {name: STELE_TRANSACTION_STATE_LOG_REPLICATION_FACTOR, value: "$factor"}
            - {name: STELE_TRANSACTION_TWO_PHASE_COMMIT_ENABLE, value: "true"}"""


def render(wish: Wish) -> str:
    """All manifests as YAML documents."""
    factor = min(3, wish.brokers)
    values = {
        "namespace": wish.namespace,
        "image": wish.image,
        "cluster_id": wish.cluster_id,
        "voters": ",".join(_voter(wish, number + 1) for number in range(wish.controllers)),
        "factor": str(factor),
        "min_insync": str(max(1, factor - 1)),
        "host": f"$(POD_NAME).stele-broker.{wish.namespace}.svc.cluster.local",
        "secret": wish.secret,
        "certificates": wish.certificates,
        "mapping_rules": MAPPING_RULES,
    }
    is_secure = bool(wish.secret)
    own = _SECURE_ENVIRONMENT if is_secure else ""
    values["security_mount"] = (
        Template(_SECURITY_MOUNT).substitute(values) + "\n" if is_secure else ""
    )
    head = _HEAD + _SECURITY_HEAD * is_secure
    listeners = _SECURE_LISTENERS if is_secure else _PLAIN_LISTENERS
    parts = [
        Template(head).substitute(values),
        Template(_BOOTSTRAP).substitute(values),
        _stateful_set(
            values,
            role="controller",
            start=1,
            replicas=wish.controllers,
            storage=wish.controller_storage,
            environment=_CONTROLLER_ENVIRONMENT + own,
            ports={"controller": 9093},
            resources=("250m", "256Mi"),
        ),
        _stateful_set(
            values,
            role="broker",
            start=FIRST_BROKER,
            replicas=wish.brokers,
            storage=wish.broker_storage,
            environment=listeners
            + _BROKER_ENVIRONMENT
            + own
            + _SECURE_BROKER_ENVIRONMENT * is_secure,
            ports={"kafka": 9092, "grpc": 9192}
            | ({"kafka-nodes": 9094, "grpc-nodes": 9194} if is_secure else {}),
            resources=("500m", "512Mi"),
        ),
    ]
    return "---\n".join(parts)


def _voter(wish: Wish, node_id: int) -> str:
    host = f"stele-controller-{node_id}.stele-controller.{wish.namespace}.svc.cluster.local"
    return f"{node_id}@{host}:9093"


def _stateful_set(
    values: dict[str, str],
    *,
    role: str,
    start: int,
    replicas: int,
    storage: str,
    environment: str,
    ports: dict[str, int],
    resources: tuple[str, str],
) -> str:
    cpu, memory = resources
    return Template(_SET).substitute(
        values,
        role=role,
        start=start,
        replicas=replicas,
        storage=storage,
        cpu=cpu,
        memory=memory,
        role_environment=Template(environment).substitute(values),
        service_ports=_lines(4, "port", ports),
        container_ports=_lines(12, "containerPort", ports),
    )


def _lines(indent: int, key: str, ports: dict[str, int]) -> str:
    space = " " * indent
    return "\n".join(f"{space}- {{name: {name}, {key}: {port}}}" for name, port in ports.items())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="deploy.kubernetes", description="Print the manifests.")
    plain = Wish()
    parser.add_argument("--namespace", default=plain.namespace)
    parser.add_argument("--image", default=plain.image)
    parser.add_argument("--cluster-id", default=plain.cluster_id, help="stele format makes one")
    parser.add_argument("--controllers", type=int, default=plain.controllers)
    parser.add_argument("--brokers", type=int, default=plain.brokers)
    parser.add_argument("--controller-storage", default=plain.controller_storage)
    parser.add_argument("--broker-storage", default=plain.broker_storage)
    parser.add_argument(
        "--secret",
        default=plain.secret,
        help="with TLS, users and access rules: the Secret with ca.pem and node-<id>.pem",
    )
    print(render(Wish(**vars(parser.parse_args(arguments)))), end="")


if __name__ == "__main__":
    main()

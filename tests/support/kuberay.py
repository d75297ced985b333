"""What Kubernetes takes of the objects that `subquad cluster render kuberay` writes, as a JSON
schema.

No cluster is at hand. Fields of ray.io/v1 are those of KubeRay's generated reference for v1.6.2
(https://docs.ray.io/en/master/cluster/kubernetes/references/api.html); those of pods and
NetworkPolicies are the part of the Kubernetes reference that we use. A field that is not listed is
refused, as by strict checks of kubectl.
"""

from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": "string", "minLength": 1}
NATURAL: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
NAME: Schema = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}


def of(required: str, /, **properties: Schema) -> Schema:
    """An object with these properties and no other ones; `required` names some, with spaces
    between.
    """
    return {
        "type": "object",
        "required": required.split(),
        "properties": properties,
        "additionalProperties": False,
    }


def several(item: Schema) -> Schema:
    return {"type": "array", "items": item, "minItems": 1}


QUANTITY: Schema = {"type": "string", "pattern": r"^\d+([KMGT]i?|m)?$"}
AMOUNTS: Schema = {
    "type": "object",
    "properties": {
        "cpu": QUANTITY,
        "memory": QUANTITY,
        "nvidia.com/gpu": {"type": "string", "pattern": r"^[1-9]\d*$"},
    },
    "additionalProperties": False,
}
CONTAINER_SECURITY = of(
    "",
    runAsNonRoot={"const": True},
    allowPrivilegeEscalation={"const": False},
    capabilities=of("drop", drop={"const": ["ALL"]}),
)
CONTAINER = of(
    "name image securityContext resources",
    name=NAME,
    image=STRING,
    securityContext=CONTAINER_SECURITY,
    resources=of("requests limits", requests=AMOUNTS, limits=AMOUNTS),
    ports=several(
        of("name containerPort", name=NAME, containerPort={"type": "integer", "minimum": 1})
    ),
    env=several(of("name value", name=STRING, value=STRING)),
    envFrom=several(of("secretRef", secretRef=of("name", name=NAME, optional=FLAG))),
    volumeMounts=several(of("name mountPath", name=NAME, mountPath=STRING, readOnly=FLAG)),
)
POD = of(
    "metadata spec",
    metadata=of("labels", labels=TEXTS),
    spec=of(
        "containers securityContext",
        restartPolicy={"enum": ["Never", "OnFailure"]},
        automountServiceAccountToken=FLAG,
        securityContext=of(
            "runAsNonRoot runAsUser",
            runAsNonRoot={"const": True},
            runAsUser={"type": "integer", "minimum": 1},
            fsGroup=NATURAL,
            seccompProfile=of("type", type={"const": "RuntimeDefault"}),
        ),
        containers=several(CONTAINER),
        volumes=several(of("name configMap", name=NAME, configMap=of("name", name=NAME))),
        tolerations=several(
            of(
                "key operator effect",
                key=STRING,
                operator={"enum": ["Exists"]},
                effect={"enum": ["NoSchedule"]},
            )
        ),
    ),
)
CLUSTER_SPEC = of(
    "rayVersion authOptions headGroupSpec workerGroupSpecs",
    rayVersion={"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
    authOptions=of("mode", mode={"const": "token"}, secretName=NAME),
    enableInTreeAutoscaling=FLAG,
    autoscalerOptions=of(
        "", idleTimeoutSeconds=NATURAL, securityContext=CONTAINER_SECURITY, resources={}
    ),
    headGroupSpec=of(
        "rayStartParams template", rayStartParams=TEXTS, template=POD, serviceType=STRING
    ),
    workerGroupSpecs=several(
        of(
            "groupName minReplicas maxReplicas rayStartParams template",
            groupName=NAME,
            replicas=NATURAL,
            minReplicas=NATURAL,
            maxReplicas={"type": "integer", "minimum": 1},
            rayStartParams=TEXTS,
            template=POD,
        )
    ),
    suspend=FLAG,
)
JOB_SPEC = of(
    "entrypoint rayClusterSpec",
    entrypoint=STRING,
    rayClusterSpec=CLUSTER_SPEC,
    submitterPodTemplate=POD,
    shutdownAfterJobFinishes=FLAG,
    ttlSecondsAfterFinished=NATURAL,
    activeDeadlineSeconds=NATURAL,
    backoffLimit=NATURAL,
    submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]},
    runtimeEnvYAML=STRING,
    suspend=FLAG,
)
SELECTOR = of("", matchLabels=TEXTS)
POLICY_SPEC = of(
    "podSelector policyTypes ingress",
    podSelector=SELECTOR,
    policyTypes={"const": ["Ingress"]},
    ingress=several(
        of(
            "from",
            **{
                "from": several(
                    of("podSelector", podSelector=SELECTOR, namespaceSelector=SELECTOR)
                ),
                "ports": several(of("port", port=NATURAL, protocol={"enum": ["TCP"]})),
            },
        )
    ),
)


def document(version: str, kind: str, **parts: Schema) -> Schema:
    names = " ".join(("apiVersion", "kind", "metadata", *parts))
    return of(
        names,
        apiVersion={"const": version},
        kind={"const": kind},
        metadata=of("name", name=NAME),
        **parts,
    )


KINDS = {
    "RayJob": document("ray.io/v1", "RayJob", spec=JOB_SPEC),
    "RayCluster": document("ray.io/v1", "RayCluster", spec=CLUSTER_SPEC),
    "NetworkPolicy": document("networking.k8s.io/v1", "NetworkPolicy", spec=POLICY_SPEC),
    "ConfigMap": document("v1", "ConfigMap", data=TEXTS),
}

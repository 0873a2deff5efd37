"""Values that installers combine, by name: each is rendered, compared and sent to an API server.

`BASE` is the smallest set of values that can be rendered without a cluster; each case is merged
into it. The namespace is `NAMESPACE`, and namespaced cases watch `team-a` and `team-b`.
"""

from __future__ import annotations

from typing import Any

Values = dict[str, Any]

NAMESPACE = "duepoint-system"
TEAMS = ("team-a", "team-b")
BASE: Values = {
    "crds": {"enabled": False},
    "redis": {"existingSecret": {"name": "redis"}},
    "blobKey": {"existingSecret": "duepoint-blob-key"},
}
VOLUME = {"name": "extra", "configMap": {"name": "extra"}}
MOUNT = {"name": "extra", "mountPath": "/etc/extra", "readOnly": True}
PROMETHEUS = "http://prometheus.monitoring.svc:9090"

CASES: dict[str, Values] = {
    "alerts-of-schedules": {
        "metrics": {
            "kubeStateMetrics": {
                "enabled": True,
                "serviceAccount": {"name": "kube-state-metrics", "namespace": "monitoring"},
            },
            "namespace": "monitoring",
            "labels": {"release": "prometheus"},
            "prometheusRule": {
                "enabled": True,
                "disabled": ["DuepointCircuitOpen", "DuepointStatusLate"],
                "alertLabels": {"team": "platform"},
                "runbookPage": "https://git.example.com/duepoint/docs/howto/runbooks.md",
            },
        }
    },
    "dashboard": {
        "metrics": {
            "namespace": "monitoring",
            "dashboard": {"enabled": True, "annotations": {"grafana_folder": "Platform"}},
        }
    },
    "traces": {"traces": {"endpoint": "http://otel-collector.monitoring:4318"}},
    "default": {},
    "names": {"fullnameOverride": "schedules"},
    "image-by-digest": {
        "image": {"repository": "registry.example.com/duepoint", "digest": "sha256:" + "a" * 64},
        "imagePullSecrets": [{"name": "registry"}],
    },
    "user-of-the-platform": {"runAsUser": None},
    "image-by-tag": {"image": {"tag": "1.2.3", "pullPolicy": "Always"}},
    "labels-and-development-redis": {
        "commonLabels": {"team": "platform"},
        "redis": {"existingSecret": {"name": ""}, "development": {"enabled": True}},
    },
    "redis-by-url": {
        "redis": {"existingSecret": {"name": ""}, "url": "rediss://user:pass@redis.example.com/1"}
    },
    "redis-cluster-with-tls": {
        "redis": {
            "existingSecret": {"name": "redis", "key": "address"},
            "passwordSecret": {"name": "redis"},
            "tls": {
                "caSecret": {"name": "ca"},
                "certificateSecret": {"name": "tls"},
            },
        }
    },
    "redis-sentinel": {"redis": {"sentinel": {"passwordSecret": {"name": "sentinel"}}}},
    "namespaced": {"watchNamespaces": list(TEAMS)},
    "namespaced-with-cluster-secrets": {
        "watchNamespaces": list(TEAMS),
        "webhooks": {"secretAccess": "ClusterWide"},
    },
    "cluster-wide-secrets": {"webhooks": {"secretAccess": "ClusterWide", "insecureTls": True}},
    "without-admission": {"admission": {"enabled": False}},
    "without-aggregation": {"rbac": {"aggregateClusterRoles": False}},
    "accounts-by-name": {
        "operator": {"serviceAccount": {"name": "op"}},
        "worker": {"serviceAccount": {"name": "wo"}},
    },
    "extra-arguments": {
        "operator": {"pod": {"args": ["--log-level=debug"]}},
        "worker": {"pod": {"args": ["--concurrency=64", "--lease-seconds=5"]}},
    },
    "extra-environment": {
        "operator": {"pod": {"env": [{"name": "TZ", "value": "UTC"}]}},
        "worker": {
            "pod": {
                "env": [
                    {
                        "name": "NODE",
                        "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}},
                    }
                ],
                "envFrom": [{"configMapRef": {"name": "proxy"}}],
            }
        },
    },
    "extra-volumes": {
        "operator": {"pod": {"volumes": [VOLUME], "volumeMounts": [MOUNT]}},
        "worker": {"pod": {"volumes": [VOLUME], "volumeMounts": [MOUNT]}},
    },
    "annotations": {
        "deploymentAnnotations": {"a": "deployment"},
        "operator": {
            "pod": {"annotations": {"a": "pod"}},
            "serviceAccount": {"annotations": {"a": "account"}},
        },
        "worker": {"pod": {"labels": {"b": "pod"}}},
    },
    "placement": {
        "operator": {
            "pod": {
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "tolerations": [{"key": "system", "operator": "Exists"}],
                "priorityClassName": "system-cluster-critical",
            }
        },
        "worker": {
            "pod": {
                "affinity": {
                    "podAntiAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "weight": 1,
                                "podAffinityTerm": {"topologyKey": "topology.kubernetes.io/zone"},
                            }
                        ]
                    }
                },
                "topologySpreadConstraints": [
                    {
                        "maxSkew": 1,
                        "topologyKey": "topology.kubernetes.io/zone",
                        "whenUnsatisfiable": "DoNotSchedule",
                    }
                ],
            }
        },
    },
    "budgets": {
        "operator": {"podDisruptionBudget": {"maxUnavailable": 1}},
        "worker": {"podDisruptionBudget": {"minAvailable": "50%"}},
    },
    "budgets-of-none": {
        "operator": {"podDisruptionBudget": {"maxUnavailable": 0}},
        "worker": {
            "podDisruptionBudget": {
                "maxUnavailable": "25%",
                "unhealthyPodEvictionPolicy": "IfHealthyBudget",
            }
        },
    },
    "autoscaling": {
        "worker": {"autoscaling": {"kind": "HorizontalPodAutoscaler", "maxReplicas": 40}}
    },
    "autoscaling-by-keda": {
        "worker": {"autoscaling": {"kind": "KEDA", "prometheusAddress": PROMETHEUS}}
    },
    "network-policy-and-monitoring": {
        "networkPolicy": {
            "enabled": True,
            "apiServer": {"ports": [8443], "to": [{"ipBlock": {"cidr": "10.0.0.10/32"}}]},
            "redis": {"to": [{"podSelector": {"matchLabels": {"app": "valkey"}}}]},
            "dns": {"to": [{"namespaceSelector": {}}]},
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}],
        },
        "metrics": {"monitor": {"kind": "PodMonitor"}},
    },
    "metrics-services": {
        "metrics": {"service": {"enabled": True, "annotations": {"prometheus.io/scrape": "true"}}}
    },
    "pod-monitor": {
        "metrics": {
            "namespace": "monitoring",
            "labels": {"release": "prometheus"},
            "monitor": {
                "kind": "PodMonitor",
                "endpoint": {
                    "interval": "15s",
                    "relabelings": [{"action": "labeldrop", "regex": "pod_template_hash"}],
                },
            },
        }
    },
    "service-monitor": {
        "metrics": {
            "monitor": {
                "kind": "ServiceMonitor",
                "endpoint": {
                    "metricRelabelings": [
                        {"action": "drop", "sourceLabels": ["__name__"], "regex": "python_.*"}
                    ]
                },
            }
        }
    },
    "egress": {
        "egress": {
            "mode": "allowlist",
            "allowedCIDRs": ["10.1.2.0/24"],
            "deniedCIDRs": ["10.1.2.3/32"],
            "clusterCIDRs": ["10.96.0.0/12"],
            "allowHttp": True,
        },
    },
    "process-settings": {
        "log": {"level": "debug"},
        "worker": {"leaseSeconds": 15, "concurrency": 512, "graceSeconds": 60},
    },
    "http-api": {"api": {"enabled": True, "tls": {"secretName": "duepoint-api-tls"}}},
    "http-api-with-web-dashboard": {
        "api": {
            "enabled": True,
            "tls": {"secretName": "duepoint-api-tls"},
            "dashboard": {"enabled": True},
        }
    },
    "http-api-behind-a-proxy": {
        "api": {
            "enabled": True,
            "tls": {"enabled": False},
            "service": {"port": 80},
            "audiences": ["duepoint"],
            "redis": {"username": "duepoint-api", "passwordSecret": {"name": "redis-api"}},
        },
        "networkPolicy": {
            "enabled": True,
            "apiFrom": [{"namespaceSelector": {"matchLabels": {"team": "shop"}}}],
        },
        "metrics": {"monitor": {"kind": "PodMonitor"}},
    },
    "http-api-behind-an-ingress": {
        "api": {"enabled": True, "tls": {"secretName": "duepoint-api-tls"}},
        "extraObjects": [
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "Ingress",
                "metadata": {"name": "duepoint", "namespace": "{{ .Release.Namespace }}"},
                "spec": {
                    "defaultBackend": {
                        "service": {
                            "name": '{{ include "duepoint.fullname" . }}-api',
                            "port": {"name": "https"},
                        }
                    }
                },
            }
        ],
    },
    "without-test": {"helmTest": {"enabled": False}},
}


def merged(below: Values, above: Values) -> Values:
    """As Helm merges values: maps by key, everything else as a whole."""
    both = dict(below)
    for key, value in above.items():
        known = both.get(key)
        is_map = isinstance(known, dict) and isinstance(value, dict)
        both[key] = merged(known, value) if is_map else value
    return both

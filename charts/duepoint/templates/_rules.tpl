{{/* The rights of each process on the objects that it looks after. */}}
{{- define "duepoint.operatorRules" -}}
- apiGroups: [duepoint.dev]
  resources: [schedules, scheduleruns, schedulesets]
  verbs: [list, watch]
- apiGroups: [duepoint.dev]
  resources: [scheduleruns]
  verbs: [delete] # when their time to live is over
- apiGroups: [duepoint.dev]
  resources: [schedulesets]
  verbs: [patch] # the finalizer: members are removed before their set
- apiGroups: [duepoint.dev]
  resources: [schedules/status, scheduleruns/status, schedulesets/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get] # spec.rows.configMapRef of ScheduleSets
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch, create, delete] # create: dry runs of templates; delete: history limits
- apiGroups: [""]
  resources: [pods]
  verbs: [list] # how the Pod of a failed Job ended
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, list] # list: why the Pods of a Job are refused
{{- end -}}

{{- define "duepoint.workerRules" -}}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [create, get, list, delete] # delete: concurrencyPolicy Replace
- apiGroups: [""]
  resources: [services]
  verbs: [get]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list]
{{- end -}}

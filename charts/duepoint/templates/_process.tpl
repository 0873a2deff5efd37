{{/*
Additions of an installer to a process, and names that follow from them. Each takes a dict: root, process (its values) and
component (its name). A process that has none of these values renders as if they were empty.
*/}}

{{/* The ServiceAccount that a process uses. */}}
{{- define "duepoint.serviceAccountName" -}}
{{- $account := default dict .process.serviceAccount -}}
{{- default (printf "%s-%s" (include "duepoint.fullname" .root) .component) (dig "name" "" $account) -}}
{{- end -}}

{{- define "duepoint.operatorAccount" -}}
{{- include "duepoint.serviceAccountName" (dict "root" . "process" .Values.operator "component" "operator") -}}
{{- end -}}

{{- define "duepoint.workerAccount" -}}
{{- $worker := include "duepoint.serviceAccountName" (dict "root" . "process" .Values.worker "component" "worker") -}}
{{- if eq $worker (include "duepoint.operatorAccount" .) -}}
{{- fail (printf "operator.serviceAccount.name and worker.serviceAccount.name are both %s; give each process an account of its own, because the operator may not create Jobs" $worker) -}}
{{- end -}}
{{- $worker -}}
{{- end -}}

{{- define "duepoint.apiAccount" -}}
{{- $api := include "duepoint.serviceAccountName" (dict "root" . "process" .Values.api "component" "api") -}}
{{- if has $api (list (include "duepoint.operatorAccount" .) (include "duepoint.workerAccount" .)) -}}
{{- fail (printf "api.serviceAccount.name is %s, which another process has; the API may create no Jobs and write no status" $api) -}}
{{- end -}}
{{- $api -}}
{{- end -}}

{{/* The values of each process that runs, by component. Takes: the root. Gives YAML. */}}
{{- define "duepoint.processes" -}}
{{- $processes := dict "operator" .Values.operator "worker" .Values.worker -}}
{{- if .Values.api.enabled }}{{ $_ := set $processes "api" .Values.api }}{{ end -}}
{{ toYaml $processes }}
{{- end -}}

{{/* The account of a process by its component. Takes: root, component. */}}
{{- define "duepoint.accountOf" -}}
{{- include (printf "duepoint.%sAccount" .component) .root -}}
{{- end -}}

{{/* The smallest number of Pods that a process has. */}}
{{- define "duepoint.leastReplicas" -}}
{{- $scaling := default dict .process.autoscaling -}}
{{- ternary (dig "minReplicas" 2 $scaling) .process.replicas (ne (dig "kind" "" $scaling) "") | int -}}
{{- end -}}

{{/* Labels and the hook of the objects that `helm test` creates. Takes: root, component, weight. */}}
{{- define "duepoint.testMetadata" -}}
labels:
  {{- include "duepoint.selector" . | nindent 2 }}
  {{- include "duepoint.labels" .root | nindent 2 }}
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

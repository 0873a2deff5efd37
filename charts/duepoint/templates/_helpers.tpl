{{/* Names: one prefix for everything of a release. */}}
{{- define "duepoint.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "duepoint.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/part-of: duepoint
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Labels that find the Pods of one process; they never change, a Deployment's selector cannot. */}}
{{- define "duepoint.selector" -}}
app.kubernetes.io/name: duepoint
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "duepoint.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default .Chart.AppVersion $image.tag }}
{{- end -}}
{{- end -}}

{{/* The Secret and the key that hold the Redis address; exactly one way to say it. */}}
{{- define "duepoint.redisSecretName" -}}
{{- $redis := .Values.redis -}}
{{- $ways := 0 -}}
{{- if $redis.url }}{{ $ways = add1 $ways }}{{ end -}}
{{- if $redis.existingSecret.name }}{{ $ways = add1 $ways }}{{ end -}}
{{- if $redis.development.enabled }}{{ $ways = add1 $ways }}{{ end -}}
{{- if ne (int $ways) 1 -}}
{{- fail "say where Redis is in exactly one way: redis.url, redis.existingSecret.name, or redis.development.enabled=true (not for production)" -}}
{{- end -}}
{{- default (printf "%s-redis" (include "duepoint.fullname" .)) $redis.existingSecret.name -}}
{{- end -}}

{{- define "duepoint.redisUrl" -}}
{{- if .Values.redis.development.enabled -}}
redis://{{ include "duepoint.fullname" . }}-valkey.{{ .Release.Namespace }}.svc:6379/0
{{- else -}}
{{ .Values.redis.url }}
{{- end -}}
{{- end -}}

{{- define "duepoint.blobKeySecretName" -}}
{{- default (printf "%s-blob-key" (include "duepoint.fullname" .)) .Values.blobKey.existingSecret -}}
{{- end -}}

{{/* Settings that both processes have. */}}
{{- define "duepoint.environment" -}}
- name: DUEPOINT_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: DUEPOINT_IDENTITY
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: DUEPOINT_WATCH_NAMESPACES
  value: {{ join "," .Values.watchNamespaces | quote }}
- name: DUEPOINT_REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "duepoint.redisSecretName" . }}
      key: {{ ternary .Values.redis.existingSecret.key "url" (ne .Values.redis.existingSecret.name "") }}
{{- if .Values.redis.passwordSecret.name }}
- name: DUEPOINT_REDIS_PASSWORD_FILE
  value: /etc/duepoint/redis-password/password
{{- end }}
- name: DUEPOINT_BLOB_KEY_FILE
  value: /etc/duepoint/blob-key/blob-key
- name: DUEPOINT_HTTP_PORT
  value: {{ .Values.httpPort | quote }}
- name: DUEPOINT_LOG_LEVEL
  value: {{ .Values.log.level }}
- name: DUEPOINT_LOG_FORMAT
  value: {{ .Values.log.format }}
{{- include "duepoint.setting" (list "SHARDS" .Values.shards) }}
{{- include "duepoint.setting" (list "NAMESPACE_SCHEDULES" .Values.namespaceSchedules) }}
{{- end -}}

{{- define "duepoint.operatorEnvironment" -}}
{{ include "duepoint.environment" . }}
- name: DUEPOINT_LEASE_NAME
  value: {{ include "duepoint.fullname" . }}-operator
{{- include "duepoint.setting" (list "RESYNC_SECONDS" .Values.operator.resyncSeconds) }}
{{- include "duepoint.setting" (list "STATUS_WRITES_PER_SECOND" .Values.operator.statusWritesPerSecond) }}
{{- end -}}

{{- define "duepoint.workerEnvironment" -}}
{{ include "duepoint.environment" . }}
- name: DUEPOINT_EGRESS_MODE
  value: {{ .Values.egress.mode }}
- name: DUEPOINT_EGRESS_ALLOWED_CIDRS
  value: {{ join "," .Values.egress.allowedCIDRs | quote }}
- name: DUEPOINT_EGRESS_DENIED_CIDRS
  value: {{ join "," .Values.egress.deniedCIDRs | quote }}
- name: DUEPOINT_EGRESS_ALLOW_HTTP
  value: {{ .Values.egress.allowHttp | quote }}
- name: DUEPOINT_GRACE_SECONDS
  value: {{ .Values.worker.graceSeconds | quote }}
{{- include "duepoint.setting" (list "LEASE_SECONDS" .Values.worker.leaseSeconds) }}
{{- include "duepoint.setting" (list "BATCH" .Values.worker.batch) }}
{{- include "duepoint.setting" (list "CONCURRENCY" .Values.worker.concurrency) }}
{{- end -}}

{{/* A setting that is left out when its value is unset, so that the program's default holds. */}}
{{- define "duepoint.setting" -}}
{{- $value := index . 1 -}}
{{- if not (kindIs "invalid" $value) }}
- name: DUEPOINT_{{ index . 0 }}
  value: {{ $value | toString | quote }}
{{- end -}}
{{- end -}}

{{/* What is the same in the Pods of both processes: everything but name, command and settings. */}}
{{- define "duepoint.podDefaults" -}}
{{- $root := .root -}}
{{- $process := .process -}}
# A Service called "duepoint" would inject DUEPOINT_PORT and the like, which are no settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $process.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $process.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $process.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $process.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- if $process.topologySpreadConstraints }}
{{ toYaml $process.topologySpreadConstraints | indent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "duepoint.selector" (dict "root" $root "component" .component) | nindent 8 }}
{{- end }}
volumes:
  - name: blob-key
    secret:
      secretName: {{ include "duepoint.blobKeySecretName" $root }}
      defaultMode: 0440
  - name: tmp
    emptyDir: {sizeLimit: 16Mi}
{{- if $root.Values.redis.passwordSecret.name }}
  - name: redis-password
    secret:
      secretName: {{ $root.Values.redis.passwordSecret.name }}
      defaultMode: 0440
      items: [{key: {{ $root.Values.redis.passwordSecret.key | quote }}, path: password}]
{{- end }}
{{- end -}}

{{- define "duepoint.containerDefaults" -}}
image: {{ include "duepoint.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
ports:
  - {name: http, containerPort: {{ .root.Values.httpPort }}, protocol: TCP}
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  failureThreshold: 3
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 5
  failureThreshold: 2
  timeoutSeconds: 5
startupProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 1
  failureThreshold: 60
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources: {{- toYaml .process.resources | nindent 2 }}
volumeMounts:
  - {name: blob-key, mountPath: /etc/duepoint/blob-key, readOnly: true}
  - {name: tmp, mountPath: /tmp}
{{- if .root.Values.redis.passwordSecret.name }}
  - {name: redis-password, mountPath: /etc/duepoint/redis-password, readOnly: true}
{{- end }}
{{- end -}}

{{/* Pod labels and annotations. A changed Redis address restarts the Pods: it is read once. */}}
{{- define "duepoint.podMetadata" -}}
labels:
  {{- include "duepoint.selector" . | nindent 2 }}
  {{- include "duepoint.labels" .root | nindent 2 }}
  {{- with .process.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/redis: {{ include "duepoint.redisUrl" .root | sha256sum }}
  {{- with .process.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

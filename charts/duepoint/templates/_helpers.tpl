{{/* Names: one prefix for everything of a release. */}}
{{- define "duepoint.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := .Chart.Name -}}
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
{{- with .Values.commonLabels }}
{{- include "duepoint.checkLabels" (dict "field" "commonLabels" "labels" .) }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Fail if a value sets a label that the chart itself sets, or one with an invalid name. */}}
{{- define "duepoint.checkLabels" -}}
{{- $field := .field -}}
{{- range $label, $_ := .labels -}}
{{- if regexMatch "^((app\\.kubernetes\\.io|helm\\.sh)/|duepoint\\.dev/)" $label -}}
{{- fail (printf "%s has %s, which the chart sets itself because selectors and upgrades depend on it; choose another name" $field $label) -}}
{{- end -}}
{{- if not (regexMatch "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" $label) -}}
{{- fail (printf "%s has %q, which is not a valid label name; write letters, digits, - _ and ., such as team or example.com/team" $field $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels that select the Pods of one process; they never change, because a Deployment's selector cannot. */}}
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

{{/* The Secret and the key that hold the Redis address; fail unless exactly one value specifies it. */}}
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

{{/* Settings that every process has. */}}
{{- define "duepoint.environment" -}}
- name: DUEPOINT_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: DUEPOINT_INSTALLATION
  value: {{ include "duepoint.fullname" . }}
- name: DUEPOINT_IDENTITY
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: DUEPOINT_WATCH_NAMESPACES
  value: {{ join "," .Values.watchNamespaces | quote }}
- name: DUEPOINT_REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "duepoint.redisSecretName" . }}
      key: {{ ternary .Values.redis.existingSecret.key "url" (ne .Values.redis.existingSecret.name "") }}
{{- with .Values.redis.tls }}
{{- if .caSecret.name }}
- name: DUEPOINT_REDIS_CA_FILE
  value: /etc/duepoint/redis-ca/ca.crt
{{- end }}
{{- if .certificateSecret.name }}
- name: DUEPOINT_REDIS_CERT_FILE
  value: /etc/duepoint/redis-certificate/tls.crt
{{- end }}
{{- end }}
{{- with .Values.redis.sentinel }}
{{- if .passwordSecret.name }}
- name: DUEPOINT_REDIS_SENTINEL_PASSWORD_FILE
  value: /etc/duepoint/redis-sentinel-password/password
{{- end }}
{{- end }}
- name: DUEPOINT_BLOB_KEY_FILE
  value: /etc/duepoint/blob-key/blob-key
- name: DUEPOINT_HTTP_PORT
  value: "8080"
- name: DUEPOINT_LOG_LEVEL
  value: {{ .Values.log.level }}
{{- include "duepoint.setting" (list "REDIS_PREFIX" .Values.redis.prefix) }}
{{- include "duepoint.setting" (list "SHARDS" .Values.shards) }}
{{- include "duepoint.setting" (list "OWN_STREAM_BYTES_PER_NAMESPACE" .Values.ownStreams.bytesPerNamespace) }}
{{- include "duepoint.setting" (list "DEAD_LETTER_BYTES_PER_NAMESPACE" .Values.deadLetters.bytesPerNamespace) }}
{{- end -}}

{{/* The Redis user of one process: its own, or the one for all. */}}
{{- define "duepoint.redisUser" -}}
{{- with .process.redis.username }}
- name: DUEPOINT_REDIS_USERNAME
  value: {{ . | quote }}
{{- end }}
{{- if fromYaml (include "duepoint.redisPassword" .) }}
- name: DUEPOINT_REDIS_PASSWORD_FILE
  value: /etc/duepoint/redis-password/password
{{- end }}
{{- end -}}

{{- define "duepoint.redisPassword" -}}
{{- if .process.redis.passwordSecret.name -}}
{{ toYaml .process.redis.passwordSecret }}
{{- else if .root.Values.redis.passwordSecret.name -}}
{{ toYaml .root.Values.redis.passwordSecret }}
{{- end -}}
{{- end -}}

{{/* Secrets with files for Redis: volume -> Secret and its items. */}}
{{- define "duepoint.redisFiles" -}}
{{- $redis := .root.Values.redis -}}
{{- with fromYaml (include "duepoint.redisPassword" .) }}
redis-password: {name: {{ .name }}, items: [{key: {{ .key | quote }}, path: password}]}
{{- end }}
{{- with $redis.sentinel.passwordSecret }}{{ if .name }}
redis-sentinel-password: {name: {{ .name }}, items: [{key: {{ .key | quote }}, path: password}]}
{{- end }}{{ end }}
{{- with $redis.tls.caSecret }}{{ if .name }}
redis-ca: {name: {{ .name }}, items: [{key: {{ .key | quote }}, path: ca.crt}]}
{{- end }}{{ end }}
{{- with $redis.tls.certificateSecret }}{{ if .name }}
redis-certificate: {name: {{ .name }}, items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]}
{{- end }}{{ end }}
{{- end -}}

{{- define "duepoint.operatorEnvironment" -}}
{{ include "duepoint.environment" . }}
{{- include "duepoint.redisUser" (dict "root" . "process" .Values.operator) }}
{{- end -}}

{{- define "duepoint.workerEnvironment" -}}
{{ include "duepoint.environment" . }}
{{- include "duepoint.redisUser" (dict "root" . "process" .Values.worker) }}
- name: DUEPOINT_EGRESS_MODE
  value: {{ .Values.egress.mode }}
- name: DUEPOINT_EGRESS_ALLOWED_CIDRS
  value: {{ join "," .Values.egress.allowedCIDRs | quote }}
- name: DUEPOINT_EGRESS_DENIED_CIDRS
  value: {{ join "," .Values.egress.deniedCIDRs | quote }}
- name: DUEPOINT_EGRESS_CLUSTER_CIDRS
  value: {{ join "," .Values.egress.clusterCIDRs | quote }}
- name: DUEPOINT_WEBHOOK_INSECURE
  value: {{ printf "%s,%s" (ternary "http" "" .Values.egress.allowHttp) (ternary "tls" "" .Values.webhooks.insecureTls) | trimAll "," | quote }}
- name: DUEPOINT_GRACE_SECONDS
  value: {{ .Values.worker.graceSeconds | quote }}
{{- include "duepoint.setting" (list "LEASE_SECONDS" .Values.worker.leaseSeconds) }}
{{- include "duepoint.setting" (list "CONCURRENCY" .Values.worker.concurrency) }}
{{- with .Values.traces.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "duepoint.apiEnvironment" -}}
{{ include "duepoint.environment" . }}
{{- include "duepoint.redisUser" (dict "root" . "process" .Values.api) }}
{{- if .Values.api.tls.enabled }}
- name: DUEPOINT_TLS_CERT_FILE
  value: /etc/duepoint/api-tls/tls.crt
{{- else }}
- name: DUEPOINT_TLS_CERT_FILE
  value: none
{{- end }}
{{- if .Values.api.dashboard.enabled }}
- name: DUEPOINT_API_DASHBOARD
  value: "true"
{{- end }}
- name: DUEPOINT_API_AUDIENCES
  value: {{ join "," .Values.api.audiences | quote }}
- name: DUEPOINT_GRACE_SECONDS
  value: {{ .Values.api.graceSeconds | quote }}
{{- end -}}

{{/* A setting that is left out when its value is unset, so that the program's default applies. */}}
{{- define "duepoint.setting" -}}
{{- $value := index . 1 -}}
{{- if not (kindIs "invalid" $value) }}
{{- $text := $value | toString }}
{{- if kindIs "float64" $value }}{{/* a large whole number would be written as 2.68435456e+08 */}}
{{- if eq (floor $value) $value }}{{ $text = $value | int64 | toString }}{{ end }}
{{- end }}
- name: DUEPOINT_{{ index . 0 }}
  value: {{ $text | quote }}
{{- end -}}
{{- end -}}

{{/*
Fail if an entry of a value has a name or path that is taken: the API server would refuse the Deployment, or the entry
would silently replace the chart's own. own: entries of the chart; extra: entries of the value; key: the field that identifies one.
*/}}
{{- define "duepoint.checkUnique" -}}
{{- $taken := dict -}}
{{- $key := .key -}}
{{- $field := .field -}}
{{- range .own }}{{ $_ := set $taken (get . $key) true }}{{ end -}}
{{- range .extra -}}
{{- $value := get . $key -}}
{{- if hasKey $taken $value -}}
{{- fail (printf "%s has the %s %s, which is taken; choose another, or set what the chart's own value for it says" $field $key $value) -}}
{{- end -}}
{{- $_ := set $taken $value true -}}
{{- end -}}
{{- end -}}

{{/* The part of a Pod that is the same for every process: all but name, command and settings. */}}
{{- define "duepoint.podDefaults" -}}
{{- $root := .root -}}
{{- $process := .process -}}
{{- $own := list (dict "name" "blob-key") (dict "name" "tmp") -}}
{{- range $volume, $_ := fromYaml (include "duepoint.redisFiles" .) }}{{ $own = append $own (dict "name" $volume) }}{{ end -}}
{{- include "duepoint.checkUnique" (dict "field" (printf "%s.pod.volumes" .component) "key" "name" "own" $own "extra" $process.pod.volumes) -}}
# A Service called "duepoint" would inject DUEPOINT_PORT and the like, which are not settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  {{- with $root.Values.runAsUser }}
  runAsUser: {{ int . }}
  runAsGroup: {{ int . }}
  fsGroup: {{ int . }}
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $process.pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $process.pod.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $process.pod.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $process.pod.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- if $process.pod.topologySpreadConstraints }}
{{ toYaml $process.pod.topologySpreadConstraints | indent 2 }}
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
{{- range $volume, $secret := fromYaml (include "duepoint.redisFiles" .) }}
  - name: {{ $volume }}
    secret:
      secretName: {{ $secret.name }}
      defaultMode: 0440
      items: {{ toJson $secret.items }}
{{- end }}
{{- with $process.pod.volumes }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- end -}}

{{- define "duepoint.containerDefaults" -}}
{{- $own := list (dict "mountPath" "/etc/duepoint/blob-key") (dict "mountPath" "/tmp") -}}
{{- range $volume, $_ := fromYaml (include "duepoint.redisFiles" .) }}{{ $own = append $own (dict "mountPath" (printf "/etc/duepoint/%s" $volume)) }}{{ end -}}
{{- include "duepoint.checkUnique" (dict "field" (printf "%s.pod.volumeMounts" .component) "key" "mountPath" "own" $own "extra" .process.pod.volumeMounts) -}}
image: {{ include "duepoint.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
ports:
  - {name: http, containerPort: 8080, protocol: TCP}
{{- if eq .component "api" }}
  - {name: api, containerPort: 8443, protocol: TCP}
{{- end }}
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  failureThreshold: 3
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: http}
  # Short: a process is ready a moment after its first probe, and the next probe must find that out.
  periodSeconds: 2
  failureThreshold: 4
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
{{- range $volume, $_ := fromYaml (include "duepoint.redisFiles" .) }}
  - {name: {{ $volume }}, mountPath: /etc/duepoint/{{ $volume }}, readOnly: true}
{{- end }}
{{- with .process.pod.volumeMounts }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- end -}}

{{/*
Pod labels and annotations. A changed Redis address restarts the Pods, which read it once. The hash leaves its login out:
everybody may read the hash, and could search it for a password. A password that changes belongs in redis.passwordSecret.
*/}}
{{- define "duepoint.podMetadata" -}}
labels:
  {{- include "duepoint.selector" . | nindent 2 }}
  {{- include "duepoint.labels" .root | nindent 2 }}
  {{- range $label, $_ := .process.pod.labels }}
  {{- if hasKey $.root.Values.commonLabels $label }}
  {{- fail (printf "%s.pod.labels has %s, and so has commonLabels; leave it out of one of them" $.component $label) }}
  {{- end }}
  {{- end }}
  {{- with .process.pod.labels }}
  {{- include "duepoint.checkLabels" (dict "field" (printf "%s.pod.labels" $.component) "labels" .) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/redis: {{ regexReplaceAll "//.*@" (include "duepoint.redisUrl" .root) "//" | sha256sum }}
  {{- with .process.pod.annotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

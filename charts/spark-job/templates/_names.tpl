{{- define "job.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "job.selector" -}}
app.kubernetes.io/name: logfleet-spark-job
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "job.labels" -}}
{{ include "job.selector" . }}
app.kubernetes.io/part-of: logfleet
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "job.account" -}}
{{ .Values.serviceAccount.name | default (ternary (include "job.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "job.claim" -}}
{{ .Values.claim.name | default (printf "%s-data" (include "job.name" .)) }}
{{- end }}

{{- define "job.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "job.isOurs" -}}
{{ if and (not .Values.file) (not .Values.script) }}yes{{ end }}
{{- end }}

{{- define "job.main" -}}
{{- if .Values.script -}}
local:///opt/spark/job/job.py
{{- else if .Values.file -}}
{{ .Values.file }}
{{- else -}}
local:///opt/logfleet/jobs/{{ .Values.job }}.py
{{- end }}
{{- end }}

{{/* The job's settings, bootstrap-servers among them. A pod's files are lost with it, so the trace of a failure goes to its log. */}}
{{- define "job.settings" -}}
{{- $cluster := .Values.cluster -}}
{{- $namespace := $cluster.namespace | default .Release.Namespace -}}
{{- $servers := printf "%s-bootstrap.%s:%d" $cluster.name $namespace (int $cluster.port) -}}
{{ merge (deepCopy .Values.settings) (dict "bootstrap-servers" $servers "trace-file" "-") | toYaml }}
{{- end }}

{{/* Where the driver shows its metrics: the default of the jobs, or metrics-port of the settings. */}}
{{- define "job.metricsPort" -}}
{{ get .Values.settings "metrics-port" | default 8090 }}
{{- end }}

{{/* Words of the command line, as a YAML list: with the Spark operator the settings themselves, as it mounts no file of ours so simply. */}}
{{- define "job.arguments" -}}
{{- $words := list -}}
{{- if include "job.isOurs" . -}}
{{- if .Values.sparkOperator.enabled -}}
{{- range $name, $value := include "job.settings" . | fromYaml -}}
{{- if kindIs "map" $value -}}
{{- range $key, $each := $value }}{{ $words = append $words (printf "--%s=%s=%v" $name $key $each) }}{{ end -}}
{{- else if kindIs "slice" $value -}}
{{- range $value }}{{ $words = append $words (printf "--%s=%v" $name .) }}{{ end -}}
{{- else if eq (toString $value) "true" -}}
{{- $words = append $words (printf "--%s" $name) -}}
{{- else if ne (toString $value) "false" -}}
{{- $words = append $words (printf "--%s=%v" $name (ternary ($value | int64) $value (kindIs "float64" $value))) -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- $words = list "--settings" "/opt/spark/job/settings.yaml" -}}
{{- end -}}
{{- end -}}
{{ concat $words .Values.arguments | toYaml }}
{{- end }}

{{/* Spark's settings that hold with and without the Spark operator: the shipped ones, then what the values mean, then sparkConf. */}}
{{- define "job.conf" -}}
{{- $conf := dict -}}
{{- range splitList "\n" (.Files.Get "files/spark-defaults.conf") -}}
{{- if and . (not (hasPrefix "#" .)) -}}
{{- $_ := set $conf (regexFind "^\\S+" .) (regexReplaceAll "^\\S+\\s+" . "") -}}
{{- end -}}
{{- end -}}
{{- with .Values.dynamicAllocation -}}
{{- if .enabled -}}
{{- $_ := set $conf "spark.dynamicAllocation.enabled" "true" -}}
{{- $_ := set $conf "spark.dynamicAllocation.shuffleTracking.enabled" "true" -}}
{{- $_ := set $conf "spark.dynamicAllocation.minExecutors" (toString .min) -}}
{{- $_ := set $conf "spark.dynamicAllocation.maxExecutors" (toString .max) -}}
{{- end -}}
{{- end -}}
{{- range $key, $value := .Values.sparkConf }}{{ $_ := set $conf $key (toString $value) }}{{ end -}}
{{ $conf | toYaml }}
{{- end }}

{{- define "job.podSecurity" -}}
runAsUser: 185
runAsGroup: 185
# a new volume belongs to root, so a group that may write is set
fsGroup: 185
fsGroupChangePolicy: OnRootMismatch
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "job.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}

{{/* Labels of every pod of the job. */}}
{{- define "job.podLabels" -}}
{{ include "job.labels" . }}
{{- if .Values.claim.enabled }}
logfleet.dev/volume: {{ include "job.claim" . }}
{{- end }}
{{- end }}

{{/* What mounts the same claim goes to the node of the first: ReadWriteOnce is for one node. */}}
{{- define "job.affinity" -}}
podAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
  - topologyKey: kubernetes.io/hostname
    labelSelector:
      matchLabels: {logfleet.dev/volume: {{ include "job.claim" . }}}
{{- end }}

{{- define "job.isOnOneNode" -}}
{{ if and .Values.claim.enabled (eq .Values.claim.accessMode "ReadWriteOnce") }}yes{{ end }}
{{- end }}

{{- define "cluster.name" -}}
{{ .Values.name | default .Release.Name }}
{{- end }}

{{- define "cluster.bootstrap" -}}
{{- $port := 9092 -}}
{{- range .Values.cluster.listeners }}{{ if eq .type "internal" }}{{ $port = .port }}{{ end }}{{ end -}}
{{ include "cluster.name" . }}-bootstrap.{{ .Release.Namespace }}.svc:{{ $port | int }}
{{- end }}

{{- define "cluster.labels" -}}
app.kubernetes.io/name: logfleet
app.kubernetes.io/instance: {{ include "cluster.name" . }}
app.kubernetes.io/part-of: logfleet
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "cluster.image" -}}
{{ .Values.cluster.image | default (printf "logfleet/broker:%s" (.Values.cluster.version | default .Chart.AppVersion)) }}
{{- end }}

{{- define "cluster.name" -}}
{{ .Values.name | default .Release.Name }}
{{- end }}

{{- define "cluster.labels" -}}
app.kubernetes.io/name: logfleet
app.kubernetes.io/instance: {{ include "cluster.name" . }}
app.kubernetes.io/part-of: logfleet
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

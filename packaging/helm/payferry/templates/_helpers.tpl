{{- define "payferry.name" -}}
{{- if contains "payferry" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-payferry{{ end }}
{{- end }}

{{- define "payferry.selector" -}}
app.kubernetes.io/name: payferry
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "payferry.labels" -}}
{{ include "payferry.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The variable of a configuration key: secrets.master_key_file is PAYFERRY_SECRETS__MASTER_KEY_FILE. */}}
{{- define "payferry.variable" -}}
PAYFERRY_{{ . | replace "." "__" | upper }}
{{- end }}

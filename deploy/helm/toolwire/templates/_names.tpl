{{- define "toolwire.selector" -}}
app.kubernetes.io/name: toolwire
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "toolwire.labels" -}}
{{ include "toolwire.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "toolwire.keys" -}}
{{- if .Values.keys.existingSecret -}}
{{ .Values.keys.existingSecret }}
{{- else -}}
{{ .Release.Name }}-keys
{{- end -}}
{{- end -}}

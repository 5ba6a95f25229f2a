{{- define "toolwire.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{- if contains "toolwire" .Release.Name -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-toolwire" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end -}}
{{- end -}}
{{- end -}}

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
{{ include "toolwire.fullname" . }}-keys
{{- end -}}
{{- end -}}

{{- define "metamcp.name" -}}
{{- printf "%s" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "metamcp.labels" -}}
app.kubernetes.io/name: metamcp
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "metamcp.gateway" -}}
app.kubernetes.io/name: metamcp
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- define "metamcp.bus" -}}
app.kubernetes.io/name: metamcp
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: nats
{{- end -}}

{{- /* The servers of the bus, each by its own name: a gateway finds those that are left when one dies. */ -}}
{{- define "metamcp.busUrl" -}}
{{- if .Values.nats.enabled -}}
{{- $name := include "metamcp.name" . -}}
{{- $urls := list -}}
{{- range $number := until (int .Values.nats.replicas) -}}
{{- $urls = append $urls (printf "nats://%s-nats-%d.%s-nats:4222" $name $number $name) -}}
{{- end -}}
{{- join "," $urls -}}
{{- else -}}
{{- required "nats.url is needed where nats.enabled is false" .Values.nats.url -}}
{{- end -}}
{{- end -}}

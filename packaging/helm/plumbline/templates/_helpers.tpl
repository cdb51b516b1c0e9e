{{- define "plumbline.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of all that is made: that of the release, and of the chart where the release's does not have it */}}
{{- define "plumbline.fullname" -}}
{{- $name := include "plumbline.name" . -}}
{{- $default := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- default $default .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* What never changes while a release lives: a selector cannot be changed */}}
{{- define "plumbline.selector" -}}
app.kubernetes.io/name: {{ include "plumbline.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "plumbline.labels" -}}
{{ include "plumbline.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- end -}}

{{- define "plumbline.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* The pod as packaging/container/daemonset.yaml has it: the one list of what it is given, which a test runs the image with */}}
{{- define "plumbline.pod" -}}
{{- (.Files.Get "files/daemonset.yaml" | fromYaml).spec.template.spec | toYaml -}}
{{- end -}}

{{/* What the chart adds to the configuration; it is laid over `config` */}}
{{- define "plumbline.config" -}}
{{- if .Values.metrics.enabled -}}
{{- $address := contains ":" .Values.metrics.address | ternary (printf "[%s]" .Values.metrics.address) .Values.metrics.address -}}
prometheus: {listen: "{{ $address }}:{{ .Values.metrics.port }}"}
{{- else -}}
prometheus: {listen: off}
{{- end }}
{{- if .Values.kubernetesEvents.enabled }}
kubernetes_events: {enabled: true}
{{- end }}
{{- end -}}

{{/* Whether Prometheus is told where the pods are, and by one way only */}}
{{- define "plumbline.monitored" -}}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled -}}
{{- fail "podMonitor.enabled and serviceMonitor.enabled are two ways to the same page: Prometheus would scrape each pod twice, and sums over hosts would be doubled. Enable one of them" -}}
{{- end -}}
{{- $monitor := .Values.podMonitor.enabled | ternary "podMonitor" "serviceMonitor" -}}
{{- if (get .Values $monitor).enabled -}}
{{- if or (not .Values.metrics.enabled) (hasPrefix "127." .Values.metrics.address) (eq .Values.metrics.address "::1") -}}
{{- fail (printf "%s.enabled needs a page that Prometheus reaches: set metrics.enabled=true and metrics.address=0.0.0.0 (or \"::\"); it names mounts and servers to whoever asks" $monitor) -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{/* The one endpoint of a PodMonitor or a ServiceMonitor, of whose values it is */}}
{{- define "plumbline.endpoint" -}}
- port: metrics
  path: /metrics
  {{- with .interval }}
  interval: {{ . }}
  {{- end }}
  {{- with .scrapeTimeout }}
  scrapeTimeout: {{ . }}
  {{- end }}
  {{- with .relabelings }}
  relabelings: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .metricRelabelings }}
  metricRelabelings: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "plumbline.makesAccount" -}}
{{- if or .Values.serviceAccount.create (and .Values.kubernetesEvents.enabled (not .Values.serviceAccount.name)) }}true{{ end -}}
{{- end -}}

{{- define "plumbline.hasAccount" -}}
{{- if or .Values.serviceAccount.create .Values.kubernetesEvents.enabled .Values.serviceAccount.name }}true{{ end -}}
{{- end -}}

{{/* With the release's namespace: two releases may each have one in `default` */}}
{{- define "plumbline.eventsRole" -}}
{{ .Release.Namespace }}-{{ include "plumbline.fullname" . }}-events
{{- end -}}

{{- define "plumbline.account" -}}
{{- default (include "plumbline.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

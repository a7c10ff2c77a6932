{{- define "mainstay.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "mainstay.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "mainstay.fullname" .) }}
{{- end -}}

{{- define "mainstay.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "mainstay.selector" -}}
app.kubernetes.io/name: mainstay
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "mainstay.labels" -}}
{{ include "mainstay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/*
What the operator does in a namespace that holds clusters. The list is exactly what its code requests: a test runs it under
these rules. `delete` never stands without a uid as precondition in the code.
*/}}
{{- define "mainstay.rules" -}}
- apiGroups: [mysql.mainstay.dev]
  resources: [mysqlclusters]
  verbs: [get, list, watch]
- apiGroups: [mysql.mainstay.dev]
  resources: [mysqlclusters/status]
  verbs: [update]
# Owner references that block the deletion of the cluster, where that is checked.
- apiGroups: [mysql.mainstay.dev]
  resources: [mysqlclusters/finalizers]
  verbs: [update]
# Schedules create backups, retention deletes them; what a person created is changed in its status only.
- apiGroups: [mysql.mainstay.dev]
  resources: [mysqlbackups]
  verbs: [get, list, watch, create, delete]
- apiGroups: [mysql.mainstay.dev]
  resources: [mysqlbackups/status]
  verbs: [update]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
# Completed and renewed by a replace that carries the resourceVersion that was read: a value that exists is never replaced by
# another. Deleted is only what a recovery was carried out with: private keys must not lie around.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, update, delete]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
# The Job of a backup is created and deleted, and never changed. Its pod and its claim are Kubernetes' own work.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, delete]
# Pods are made by the StatefulSet; the operator deletes outdated ones, one at a time, and labels them with their role.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch, delete]
# Claims are made by the StatefulSet; the operator asks for more room, and deletes the one of a volume that was given up.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list, watch, patch, delete]
# Warnings of Kubernetes about the cluster's pods and claims are read, its own events are written.
- apiGroups: [""]
  resources: [events]
  verbs: [list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

package main

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	provisionedBy     = "pv.kubernetes.io/provisioned-by"
	firstRetry        = 200 * time.Millisecond
	longestRetryPause = 10 * time.Second
)

// grower does what the external resizer does for a CSI driver: enlarges the volume, then the PersistentVolume's capacity,
// then leaves the claim to the kubelet with the condition FileSystemResizePending.
type grower struct {
	client  kubernetes.Interface
	storage storage
	claims  coreinformers.PersistentVolumeClaimInformer
	volumes coreinformers.PersistentVolumeInformer
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]
	events  record.EventRecorder
}

func newGrower(client kubernetes.Interface, storage storage, claims coreinformers.PersistentVolumeClaimInformer, volumes coreinformers.PersistentVolumeInformer) *grower {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: client.CoreV1().Events("")})
	g := &grower{
		client: client, storage: storage, claims: claims, volumes: volumes,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, longestRetryPause)),
		events: broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: provisionerName}),
	}
	enqueue := func(object any) {
		if claim, ok := object.(*v1.PersistentVolumeClaim); ok && wantsMore(claim) {
			g.queue.Add(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
		}
	}
	_, _ = claims.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, now any) { enqueue(now) },
	})
	return g
}

func wantsMore(claim *v1.PersistentVolumeClaim) bool {
	wanted, has := claim.Spec.Resources.Requests[v1.ResourceStorage], claim.Status.Capacity[v1.ResourceStorage]
	return claim.Status.Phase == v1.ClaimBound && wanted.Cmp(has) > 0
}

func (g *grower) run(ctx context.Context) {
	cache.WaitForCacheSync(ctx.Done(), g.claims.Informer().HasSynced, g.volumes.Informer().HasSynced)
	for {
		name, quit := g.queue.Get()
		if quit {
			return
		}
		if err := g.sync(ctx, name); err != nil {
			klog.ErrorS(err, "failed to grow a volume", "claim", name)
			g.queue.AddRateLimited(name)
		} else {
			g.queue.Forget(name)
		}
		g.queue.Done(name)
	}
}

func (g *grower) sync(ctx context.Context, name types.NamespacedName) error {
	claim, err := g.claims.Lister().PersistentVolumeClaims(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || !wantsMore(claim) {
		return err
	}
	volume, err := g.volumes.Lister().Get(claim.Spec.VolumeName)
	if err != nil || volume.Annotations[provisionedBy] != provisionerName {
		return err
	}
	wanted, has := claim.Spec.Resources.Requests[v1.ResourceStorage], volume.Spec.Capacity[v1.ResourceStorage]
	if wanted.Cmp(has) > 0 {
		if err := g.grow(ctx, volume, wanted); err != nil {
			g.events.Eventf(claim, v1.EventTypeWarning, "VolumeResizeFailed", "failed to grow the volume to %s: %v", wanted.String(), err)
			return err
		}
	}
	return g.leaveToKubelet(ctx, claim, wanted)
}

func (g *grower) grow(ctx context.Context, volume *v1.PersistentVolume, wanted resource.Quantity) error {
	node, err := nodeOf(volume)
	if err != nil {
		return err
	}
	if err := g.storage.grow(node, volume.Name, wanted.Value()); err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"spec":{"capacity":{"storage":%q}}}`, wanted.String())
	_, err = g.client.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// leaveToKubelet says in the claim's status that only the node's part is left, once.
func (g *grower) leaveToKubelet(ctx context.Context, claim *v1.PersistentVolumeClaim, wanted resource.Quantity) error {
	allocated := claim.Status.AllocatedResources[v1.ResourceStorage]
	if claim.Status.AllocatedResourceStatuses[v1.ResourceStorage] != "" && allocated.Cmp(wanted) == 0 {
		return nil
	}
	changed := claim.DeepCopy()
	changed.Status.AllocatedResources = v1.ResourceList{v1.ResourceStorage: wanted}
	changed.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{
		v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending,
	}
	changed.Status.Conditions = []v1.PersistentVolumeClaimCondition{{
		Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now(),
		Message: "Waiting for user to (re-)start a pod to finish file system resize of volume on node.",
	}}
	_, err := g.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	return err
}

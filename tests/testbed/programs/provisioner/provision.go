package main

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// provisioner answers claims of the testbed's storage classes.
type provisioner struct{ storage storage }

var _ controller.Provisioner = provisioner{}

// Provision makes a volume on the node that the scheduler has chosen.
func (p provisioner) Provision(_ context.Context, options controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	node := options.SelectedNodeName
	if node == "" {
		return nil, controller.ProvisioningFinished, errors.New("no node is chosen: the storage class needs volumeBindingMode WaitForFirstConsumer")
	}
	if mode := options.PVC.Spec.VolumeMode; mode != nil && *mode == v1.PersistentVolumeBlock {
		return nil, controller.ProvisioningFinished, errors.New("raw block volumes are not supported")
	}
	size := options.PVC.Spec.Resources.Requests[v1.ResourceStorage]
	err := p.storage.create(node, options.PVName, size.Value())
	if errors.Is(err, errNodeOff) {
		return nil, controller.ProvisioningReschedule, fmt.Errorf("failed to make a volume on %s: %w", node, err)
	}
	if err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("failed to make a volume of %s on %s: %w", size.String(), node, err)
	}
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   options.PVC.Spec.AccessModes,
			MountOptions:                  options.StorageClass.MountOptions,
			Capacity:                      v1.ResourceList{v1.ResourceStorage: size},
			PersistentVolumeSource:        v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: p.storage.path(node, options.PVName)}},
			NodeAffinity:                  onlyOn(node),
		},
	}, controller.ProvisioningFinished, nil
}

// Delete removes the volume of a released PersistentVolume.
func (p provisioner) Delete(_ context.Context, volume *v1.PersistentVolume) error {
	node, err := nodeOf(volume)
	if err != nil {
		return err
	}
	return p.storage.remove(node, volume.Name)
}

func onlyOn(node string) *v1.VolumeNodeAffinity {
	return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{
			Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{node},
		}},
	}}}}
}

// nodeOf reads back what onlyOn wrote.
func nodeOf(volume *v1.PersistentVolume) (string, error) {
	if affinity := volume.Spec.NodeAffinity; affinity != nil && affinity.Required != nil {
		for _, term := range affinity.Required.NodeSelectorTerms {
			for _, wanted := range term.MatchExpressions {
				if wanted.Key == v1.LabelHostname && len(wanted.Values) == 1 {
					return wanted.Values[0], nil
				}
			}
		}
	}
	return "", fmt.Errorf("the volume %s names no node", volume.Name)
}

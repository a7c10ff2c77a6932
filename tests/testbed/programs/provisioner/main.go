// provisioner: dynamic volumes of real size for the testbed.
//
// Each volume is an XFS file system on a sparse file, mounted inside its node's mount namespace and offered as a `local`
// PersistentVolume. Full disks, growth while mounted and I/O errors are therefore the kernel's own.
//
//	provisioner run --kubeconfig FILE --nodes FOLDER   serves claims (runs outside of the nodes)
//	provisioner mount FOLDER                           mounts every volume below a node's folder (runs inside the node)
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

const (
	provisionerName = "testbed.mainstay.dev/xfs"
	workers         = 8
	queriesPerSec   = 200
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "provisioner:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	if len(args) == 2 && args[0] == "mount" {
		return mountAll(args[1])
	}
	if len(args) == 0 || args[0] != "run" {
		return fmt.Errorf("usage: provisioner run --kubeconfig FILE --nodes FOLDER | provisioner mount FOLDER")
	}
	flags := flag.NewFlagSet("run", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "credentials for the API server")
	nodes := flags.String("nodes", "", "folder that holds one folder a node")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	return serve(klog.NewContext(context.Background(), klog.Background()), *kubeconfig, *nodes)
}

func serve(ctx context.Context, kubeconfig, nodes string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("failed to read the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = queriesPerSec, queriesPerSec
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("failed to make a client: %w", err)
	}
	storage := storage{nodes: nodes}
	shared := informers.NewSharedInformerFactory(client, 0)
	claims, volumes := shared.Core().V1().PersistentVolumeClaims(), shared.Core().V1().PersistentVolumes()
	grower := newGrower(client, storage, claims, volumes)
	provision := controller.NewProvisionController(ctx, client, provisionerName, provisioner{storage},
		controller.LeaderElection(false), controller.Threadiness(workers),
		controller.ClaimsInformer(claims.Informer()), controller.VolumesInformer(volumes.Informer()))
	shared.Start(ctx.Done())
	go grower.run(ctx)
	provision.Run(ctx)
	return nil
}

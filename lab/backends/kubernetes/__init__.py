"""The backend `kubernetes`: each task is a pod, and the run volume is a volume claim.

It needs a kubeconfig, a namespace in which the user may create the rendered objects, an image of
`lab` that the nodes can pull, and a volume claim that all nodes can mount.
"""

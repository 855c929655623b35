"""The backend whose pseudo-nodes are processes, in namespaces if the kernel allows them."""

//! The simulator: the production core on a virtual network, under one seed.

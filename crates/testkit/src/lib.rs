//! Clusters of real nodes for tests.

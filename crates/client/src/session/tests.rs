mod against_nodes;
mod stories;

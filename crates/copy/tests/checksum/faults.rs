//! Memory that ends: a page that may not be touched before or behind, and faults at every offset.

"""The inference proxy: one door to the engines that records exact tokens and policy versions."""

"""Constructions that replace operations which a target lacks or has too inexactly."""

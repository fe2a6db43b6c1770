-- Nothing of this number yet.
SELECT 1;

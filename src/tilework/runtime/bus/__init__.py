"""The doors to hardware and to vendors' libraries: drivers use them alone, tests replace them."""
